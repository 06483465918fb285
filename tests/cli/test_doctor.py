"""`fastq doctor`: it finds what crashes and hands leave behind, puts right what is safe, and is quiet about what is well."""

from collections.abc import Callable, Iterator

import pytest
import redis as redis_py

from fastq import FastQ, Unique
from fastq.broker import requests
from fastq.cli import diagnosis
from fastq.keys import QueueKeys, queue_keys
from tests.support.builders import message, uid
from tests.support.operate import operate
from tests.support.servers import Server


@pytest.fixture
def app(url: str, namespace: str) -> Iterator[FastQ]:
    with FastQ(url, namespace=namespace) as app:
        yield app


@pytest.fixture
def keys(namespace: str) -> QueueKeys:
    return queue_keys(namespace, "default")


def examine(app: FastQ, *arguments: str) -> tuple[int, dict[str, str]]:
    """The exit code, and what is found in queues: its level, "fixed" if it has been put right."""
    there = ["--url", app.config.url or "", "--namespace", app.config.namespace]
    [answer] = operate(["doctor", *arguments, *there, "--json"])
    assert answer.err == ""
    found = [one for one in answer.json["findings"] if one["where"] != "server"]
    return answer.code, {one["what"]: "fixed" if one["fixed"] else one["level"] for one in found}


def damage(app: FastQ, redis: redis_py.Redis, keys: QueueKeys) -> None:
    """Leave behind what no crash of ours is known to leave, but hands and lost data may."""
    app.using(delay=60, unique=Unique(ttl=60)).enqueue("t", n=1)
    redis.delete(keys.scheduled)
    redis.hset(keys.progress, "1-1", b"\1")
    redis.hset(keys.stats, "waiting", 5)
    redis.rpush(keys.parked(b"t:a"), message("a"))


def test_a_sound_queue_has_no_findings_even_with_work_of_all_kinds_in_it(app: FastQ, keys: QueueKeys) -> None:
    for queue in ("default", "mail"):
        unique = app.using(unique=Unique(ttl=60), queue=queue)
        app.enqueue_many([unique.prepare("t", n=n) for n in range(500)])
        app.using(unique=Unique(ttl=60), queue=queue, delay=60).enqueue("t", n=-1)
        app.broker.call(requests.join(queue_keys(app.config.namespace, queue), b"w"))

    # All but that the jobs wait: the worker is there, and is young.
    assert examine(app)[1] == {}


def test_what_is_left_behind_is_found_and_put_right_when_asked(app: FastQ, redis: redis_py.Redis, keys: QueueKeys) -> None:
    damage(app, redis, keys)
    expected = {
        "1 note of progress in entries that are gone",
        "the counter of waiting jobs is wrong by +5",
        "1 lock without a job: its like cannot be enqueued until it expires",
        "jobs that nobody looks after are parked behind 1 key",
    }
    waiting = "5 jobs waiting, and no worker is there"  # as the counter has it

    assert examine(app) == (1, {**dict.fromkeys(expected, "wrong"), waiting: "wrong"})
    assert redis.hget(keys.stats, "waiting") == b"5"
    assert examine(app, "--fix") == (1, {**dict.fromkeys(expected, "fixed"), waiting: "wrong"})

    assert examine(app)[1] == {"jobs are parked behind 1 key whose lock is gone": "note"}
    assert redis.hget(keys.stats, "waiting") == b"0"
    assert not app.using(unique=Unique(ttl=60)).enqueue("t", n=1).duplicate


def test_a_queue_that_is_not_named_is_left_alone(app: FastQ, redis: redis_py.Redis, keys: QueueKeys) -> None:
    damage(app, redis, keys)

    assert examine(app, "mail", "--fix")[1] == {}
    assert redis.hlen(keys.progress) == 1
    assert len(list(redis.scan_iter(match=keys.unique(b"") + b"*"))) == 1


def test_what_stands_still_is_told(app: FastQ, redis: redis_py.Redis, keys: QueueKeys) -> None:
    app.enqueue("t")
    app.queue().pause()
    redis.hset(keys.pending, uid("nobody"), message("x", lock="x"))

    _, found = examine(app)

    assert found == {
        "it is paused": "note",
        "1 job waiting, and no worker is there": "wrong",
        "1 call left to rerun behind a job that has lost its lock": "note",
    }


def test_a_worker_that_gives_no_sign_and_holds_jobs_is_told(url: str, namespace: str, redis: redis_py.Redis) -> None:
    with FastQ(url, namespace=namespace) as app:
        keys = queue_keys(namespace, "default")
        app.enqueue("t")
        app.broker.call(requests.join(keys, b"gone"))
        app.broker.call(requests.fetch(keys, b"gone", entries=1, suspects=False))
        redis.zadd(keys.consumers, {"gone": -1})
        redis.hset(keys.stats, "waiting", 0)

        # With a lease that any silence is longer than.
        [found] = app.broker.run(diagnosis.look_at_queue(keys, -1, False, lambda seconds: None))

    assert found.what == "1 frame in the hands of 1 worker without a sign of life"
    assert "start one" in found.advice


def test_settings_that_lose_jobs_are_told_with_what_to_change(start_server: Callable[..., Server]) -> None:
    bad = start_server(config={"maxmemory-policy": "allkeys-lru", "maxmemory": "100mb"})
    good = start_server(aof="everysec")

    [wrong] = operate(["doctor", "--url", bad.url, "--json"])
    [well] = operate(["doctor", "--url", good.url])

    told = {one["what"]: one["advice"] for one in wrong.json["findings"] if one["level"] == "wrong"}
    assert any("evicts" in what and "noeviction" in advice for what, advice in told.items())
    assert any("keeps nothing on disk" in what and "appendonly" in advice for what, advice in told.items())
    assert (wrong.code, wrong.json["ok"]) == (1, False)
    assert "there and back" in well.out
    assert (well.code, well.err) == (0, "all is well\n")
