"""Workers that are killed, frozen or taken for dead: nothing is lost, and nothing counts twice."""

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fastq.broker.scripts import load
from fastq.codec import Frame
from fastq.keys import queue_keys
from tests.support import process
from tests.support.builders import message
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.worker.conftest import Bench


def unsettled(bench: Bench) -> set[str]:
    """The keys of the jobs that the server still holds, but for those that are settled in an unfinished frame."""
    keys = queue_keys(bench.namespace, "default")
    settled = bench.client.hgetall(keys.progress)
    found = set()
    for stream in (keys.stream, keys.front, keys.suspects):
        for entry_id, fields in bench.client.xrange(stream):
            frame = Frame(fields[b"f"])
            bits = int.from_bytes(settled.get(entry_id, b""), "little")
            found |= {key_of(frame[i].payload) for i in range(len(frame)) if not bits >> i & 1}
    return found


def key_of(payload: bytes) -> str:
    (key, *_), _ = msgspec.msgpack.decode(payload)
    return str(key)


@pytest.mark.parametrize("jobs", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_worker_killed_in_the_middle_of_many_jobs_repeats_only_what_was_not_settled(bench: Bench, jobs: int) -> None:
    keys = [f"j{number}" for number in range(jobs)]
    bench.task["note"].enqueue_many([(key,) for key in keys])
    worker = bench.start()
    enough = jobs // 3 * 2 * 60  # bytes: two lines a job
    process.wait_until(lambda: bench.ledger.path.stat().st_size > enough, timeout=60)

    worker.kill()
    at_the_kill = unsettled(bench)
    ran_before = bench.ledger.read().ends.keys()
    bench.start()
    bench.wait_settled(timeout=90)

    reading = bench.ledger.read()
    assert 0 < len(at_the_kill) < jobs, "the kill was not in the middle"
    assert reading.missing(keys) == set()
    assert set(reading.repeated()) <= at_the_kill
    assert set(keys) - ran_before <= at_the_kill
    assert bench.stat("succeeded") == jobs


def test_jobs_of_a_frame_that_were_settled_are_not_run_again(bench: Bench, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    quick, slow = [f"q{i}" for i in range(24)], [f"s{i}" for i in range(40)]
    calls = [bench.task["note"].prepare(key) for key in quick] + [bench.task["wait_for"].prepare(key, str(gate)) for key in slow]
    bench.app.enqueue_many(calls)
    assert len(bench.state()["stream"]) == 1
    worker = bench.start()
    bench.wait_started(*slow)
    process.wait_until(lambda: list(bench.state().get("progress", {}).values()) == ["1" * 24 + "0" * 40])

    worker.kill()
    gate.touch()
    bench.start()
    bench.wait_settled()

    starts = bench.ledger.read().starts
    assert {starts[key] for key in quick} == {1}
    assert {starts[key] for key in slow} == {2}


def test_a_corrupt_end_of_a_frame_is_not_buried_again_after_a_crash(bench: Bench, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    jobs = [message(label, task="wait_for", args=[label, str(gate)]) for label in "ab"]
    bench.client.xadd(queue_keys(bench.namespace, "default").stream, {b"f": b"".join(jobs) + b"corrupt" * 20})
    worker = bench.start()
    bench.wait_started("a", "b")
    process.wait_until(lambda: bench.stat("dead") == 1)

    worker.kill()
    gate.touch()
    bench.start()
    bench.wait_settled()

    assert bench.ledger.read().ends == {"a": 1, "b": 1}
    assert (bench.stat("dead"), len(bench.state()["dead"])) == (1, 1)


def test_a_job_that_kills_its_workers_is_buried_and_those_near_it_finish(bench: Bench) -> None:
    good = [f"g{i}" for i in range(20)]
    calls = [bench.task["note"].prepare(key) for key in good]
    calls.insert(10, bench.task["die"].prepare("poison"))
    bench.app.enqueue_many(calls)

    deaths = 0
    while not bench.state("dead"):
        worker = bench.start(concurrency=4)
        while worker.returncode is None and not bench.state("dead"):
            time.sleep(0.02)
        deaths += worker.returncode == -signal.SIGKILL

    bench.wait_settled()
    assert deaths <= 4
    assert bench.started("poison") == deaths
    assert bench.ledger.read().missing(good) == set()
    assert list(bench.state()["why"].values()) == [f"worker lost: {deaths} workers died with this job in hand"]


def test_a_frozen_worker_that_wakes_up_settles_nothing_and_comes_back(bench: Bench, tmp_path: Path) -> None:
    first_gate, second_gate = tmp_path / "first", tmp_path / "second"
    bench.task["single_wait"].enqueue("x", str(first_gate))
    frozen = bench.start()
    bench.wait_started("x")
    os.kill(frozen.pid, signal.SIGSTOP)

    other = bench.start()
    process.wait_until(lambda: bench.started("x") == 2)  # its jobs are the other's
    first_gate.touch()
    bench.wait_settled()
    successor = bench.task["single_wait"].enqueue("x", str(second_gate))  # of the same key
    process.wait_until(lambda: bench.started("x") == 3)
    os.kill(frozen.pid, signal.SIGCONT)
    frozen.wait_line("taken for dead")
    frozen.wait_line(r"serves|task=single_wait", count=1)
    process.wait_until(lambda: len(bench.ledger.read().unfinished()) == 1)  # what it had in hand has ended there

    assert [lock.split()[0] for lock in bench.state()["locks"].values()] == [successor.uid.replace("-", "")]
    assert bench.stat("succeeded") == 1
    second_gate.touch()
    bench.wait_settled()
    assert (bench.stat("succeeded"), bench.stat("locks_lost"), bench.state("locks")) == (2, 0, {})

    # It takes part again, under another name.
    other.send(signal.SIGTERM)
    assert other.wait() == 0
    bench.task["note"].enqueue("after")
    bench.wait_ended("after")
    assert frozen.returncode is None


def test_a_job_that_holds_the_event_loop_for_longer_than_the_lease_is_not_taken_away(bench: Bench) -> None:
    bench.task["hog"].enqueue("hog", 2.5)
    bench.start(concurrency=1)
    bench.wait_started("hog")
    bench.start(concurrency=1)

    bench.wait_settled()

    assert bench.ledger.read().starts == {"hog": 1}
    assert (bench.stat("fenced"), bench.stat("succeeded")) == (0, 1)


def test_consumers_of_workers_that_are_gone_are_not_kept(bench: Bench) -> None:
    for signum in (signal.SIGTERM, signal.SIGKILL):
        worker = bench.start()
        worker.send(signum)
        worker.wait()
    bench.task["note"].enqueue("a")
    last = bench.start()
    bench.wait_ended("a")

    process.wait_until(lambda: len(bench.state()["consumers"]) == 1)

    held = bench.state("pending")["pending"]
    assert {name.split("-")[1] for stream in held.values() for name in stream} == {str(last.pid)}


def test_a_worker_that_knows_of_no_beat_starts_nothing_once_others_may_think_it_dead(
    server: Server, redis: Any, tmp_path: Path, bench_on: Callable[..., Bench]
) -> None:
    """Also before its first beat: it may have been frozen right then, and its jobs may be others' by now."""
    lease = 6.0
    gate, jobs = tmp_path / "gate", [f"j{number}" for number in range(20)]
    redis.script_load(load("beat").source)
    with Proxy(server) as proxy:
        beats = proxy.on_request(load("beat").sha, "lose_reply", times=1_000_000)
        bench = bench_on(proxy.url, redis, lease=lease)
        note, wait_for = bench.task["note"], bench.task["wait_for"]
        bench.app.enqueue_many([wait_for.prepare("first", str(gate)), *(note.prepare(job) for job in jobs)])  # one frame
        bench.start(concurrency=1)
        bench.wait_started("first")
        time.sleep(0.7 * lease)

        gate.touch()
        bench.wait_ended("first")
        process.wait_until(lambda: bench.stat("succeeded") == 1)
        known = time.monotonic_ns()
        assert beats.seen
        proxy.clear()
        bench.wait_settled()

        assert all(run.started > known for run in bench.ledger.read().runs if run.key in jobs)


def test_a_wait_for_jobs_is_over_before_its_worker_can_be_dead(url: str, redis: Any, bench_on: Callable[..., Bench]) -> None:
    """Else the wait of a frozen worker, which the server goes on with, takes the jobs that were just brought back from it."""
    lease = 0.8
    bench = bench_on(url, redis, lease=lease)
    wait = re.compile(rf"XREADGROUP .* BLOCK (\d+) .*{re.escape(bench.namespace)}:")
    with redis.monitor() as monitor:
        bench.start()
        found = next(found for said in monitor.listen() if (found := wait.search(said["command"])))

    may_begin = 0.7 * lease  # after the last beat: no worker without one fetches later
    assert may_begin + int(found[1]) / 1000 < lease
