"""A queue as a whole: counted, paused, resumed, purged; who serves it."""

import asyncio
import time

import pytest

from fastq import Backoff, ConfigError, QueueCounts, ResultUnavailable, Unique
from fastq.broker import requests
from fastq.keys import queue_keys
from tests.support.bursts import BriefWorker, burst
from tests.support.queues import ids, locks


def test_a_queue_that_nobody_has_used_holds_nothing(app, call):
    assert call(app.queue("new"), "counts") == QueueCounts(False, 0, 0, 0, 0, 0, 0, {})
    assert call(app.queue("new"), "workers") == []
    assert call(app.queue("new"), "purge") == 0
    with pytest.raises(ConfigError):
        app.queue("no queue")


def test_jobs_are_counted_by_what_they_wait_for(app, call):
    @app.task(name="t", queue="q", retries=1)
    async def t(n: int) -> None:
        raise OSError

    t.enqueue_many((n,) for n in range(3))
    t.using(retries=0).enqueue(9)
    burst(app)
    t.using(delay=60).enqueue(1)
    t.using(delay=60).enqueue(2)
    t.enqueue(5)

    counts = call(app.queue("q"), "counts")

    assert (counts.waiting, counts.running, counts.scheduled, counts.retrying, counts.dead) == (1, 0, 2, 3, 1)
    assert (counts.paused, counts.workers) == (False, 0)
    assert {name: counts.totals[name] for name in ("enqueued", "failed", "failed:t", "dead")} == {
        "enqueued": 7,
        "failed": 4,
        "failed:t": 4,
        "dead": 1,
    }


def test_a_retry_that_ends_by_promotion_cancel_or_purge_is_retrying_no_more(app):
    @app.task(name="t", retries=2)
    async def t(n: int) -> None:
        raise OSError

    jobs = [t.using(retries=_slow(30)).enqueue(n) for n in range(3)] + [t.using(retries=_slow(0.2)).enqueue(3)]
    burst(app)
    # The fast one was promoted twice within the burst, and is dead.
    assert (app.queue().counts().retrying, app.queue().counts().dead) == (3, 1)

    assert jobs[0].cancel()
    assert app.queue().counts().retrying == 2
    assert app.queue().purge() == 2

    counts = app.queue().counts()
    assert (counts.retrying, counts.scheduled, counts.waiting, counts.dead) == (0, 0, 0, 1)


def _slow(delay: float) -> Backoff:
    return Backoff(retries=2, delay=delay, factor=1, jitter=0)


def test_jobs_in_a_workers_hands_are_running_and_it_is_named(app, call):
    @app.task(name="t")
    async def t() -> None:
        entered.append(1)
        await asyncio.sleep(60)

    entered = []
    t.enqueue_many(() for _ in range(5))

    async def look() -> None:
        worker = BriefWorker(app, name="somebody", grace=0)
        running = asyncio.create_task(worker.arun())
        while len(entered) < 5:
            await asyncio.sleep(0.01)
        counts = await app.queue().acounts()
        assert (counts.running, counts.workers) == (5, 1)
        [info] = await app.queue().aworkers()
        assert info.name.startswith("somebody-")
        assert not info.fenced
        assert info.silent_for < 5
        worker.stop()
        await running
        await app.aclose()

    asyncio.run(asyncio.wait_for(look(), 20))

    assert app.queue().counts().running == 0
    assert app.queue().counts().waiting == 5, "handed back"
    assert call(app.queue(), "workers") == []


def test_a_settled_part_of_a_frame_is_in_hand_no_more(app, redis, namespace):
    """Of a frame of many, those that have ended do not count."""
    keys = queue_keys(namespace, "default")
    task = app.task(name="t")(lambda n: None)
    task.enqueue_many((n,) for n in range(10))
    app.broker.call(requests.join(keys, b"w"))
    app.broker.call(requests.fetch(keys, b"w", entries=10, suspects=False))
    [(entry_id, _)] = redis.xrange(keys.stream)
    assert app.queue().counts().running == 10

    redis.hset(keys.progress, entry_id, b"\x07\x00")

    assert app.queue().counts().running == 7


def test_a_fenced_worker_is_shown_as_such(app, redis, namespace):
    redis.zadd(queue_keys(namespace, "default").consumers, {"gone": -1, "here": time.time() * 1000})

    gone, here = app.queue().workers()

    assert (gone.name, gone.fenced, gone.silent_for) == ("gone", True, 0.0)
    assert (here.name, here.fenced) == ("here", False)
    assert app.queue().counts().workers == 1


def test_a_paused_queue_starts_nothing_until_it_is_resumed(app, call):
    ran = []
    app.task(name="t")(lambda n: ran.append(n))

    assert call(app.queue(), "pause") is True
    assert call(app.queue(), "pause") is False
    assert app.queue().counts().paused
    app.enqueue("t", 1)

    async def run() -> None:
        worker = BriefWorker(app)
        running = asyncio.create_task(worker.arun())
        while app.queue().counts().workers == 0:
            await asyncio.sleep(0.01)
        # Three beats of its ticker: time enough to start a job, if it would.
        await asyncio.sleep(0.3)
        assert ran == []
        assert await app.queue().aresume() is True
        assert await app.queue().aresume() is False
        while not ran:
            await asyncio.sleep(0.01)
        worker.stop()
        await running
        await app.aclose()

    asyncio.run(asyncio.wait_for(run(), 20))
    assert not app.queue().counts().paused


def test_a_resumed_queue_still_obeys_what_was_cancelled_meanwhile(app):
    ran = []
    app.task(name="t")(lambda n: ran.append(n))
    app.queue().pause()
    jobs = [app.enqueue("t", n) for n in range(3)]
    jobs[1].cancel()

    app.queue().resume()
    burst(app)

    assert sorted(ran) == [0, 2]


def test_a_purge_deletes_what_waits_is_scheduled_or_retrying_and_frees_locks_and_ids(app, call, redis, namespace):
    task = app.task(name="t")(lambda n: None)
    unique = task.using(unique=Unique(ttl=60, until="ttl"))
    task.enqueue_many((n,) for n in range(3000))
    unique.enqueue(1)
    task.using(job_id="i", retention=60).enqueue(2)
    task.using(delay=60).enqueue(3)
    unique.using(delay=60).enqueue(4)
    assert len(locks(redis, namespace)) == 2

    assert call(app.queue(), "purge") == 3004

    assert locks(redis, namespace) == {}
    keys = queue_keys(namespace, "default")
    assert (redis.xlen(keys.stream), redis.exists(keys.scheduled, keys.jobs)) == (0, 0)
    counts = app.queue().counts()
    assert (counts.waiting, counts.scheduled, counts.totals["purged"]) == (0, 0, 3004)
    assert ids(redis, namespace) == {}


def test_a_purge_leaves_what_a_worker_has_and_what_is_dead(app, redis, namespace):
    @app.task(name="t", retries=0)
    async def t(n: int) -> None:
        raise OSError

    t.enqueue(0)
    burst(app)
    keys = queue_keys(namespace, "default")
    t.enqueue(1)
    app.broker.call(requests.join(keys, b"w"))
    app.broker.call(requests.fetch(keys, b"w", entries=1, suspects=False))
    t.enqueue(2)

    assert app.queue().purge() == 1

    counts = app.queue().counts()
    assert (counts.running, counts.dead) == (1, 1)


def test_a_purged_job_keeps_nobody_waiting(app):
    task = app.task(name="t", result_ttl=60)(lambda: None)
    job = task.enqueue()

    async def wait() -> None:
        waiting = asyncio.create_task(job.aresult(timeout=10))
        await asyncio.sleep(0.1)
        await app.queue().apurge()
        with pytest.raises(ResultUnavailable, match="deleted"):
            await waiting
        await app.aclose()

    begun = time.monotonic()
    asyncio.run(wait())
    assert time.monotonic() - begun < 5
    assert job.status() == "untracked"
