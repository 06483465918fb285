"""How a worker ends: in good order, with all that it has not started in the hands of others."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.support import process
from tests.worker.conftest import Bench


def waiting(bench: Bench) -> int:
    """How many jobs stand in the streams, in nobody's hands."""
    state = bench.state("stream", "front", "suspects", "pending")
    held = [held for stream in state.pop("pending", {}).values() for held in stream.values() if held]
    assert held == []
    return sum(len(entry.split()) for entries in state.values() for entry in entries)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_told_to_end_hands_back_what_it_has_not_started(
    bench: Bench, tmp_path: Path, signum: signal.Signals
) -> None:
    gate = tmp_path / "gate"
    keys = [f"j{i}" for i in range(60)]
    bench.task["wait_for"].enqueue_many([(key, str(gate)) for key in keys])
    worker = bench.start(concurrency=2, grace=10)
    process.wait_until(lambda: len(bench.ledger.read().runs) == 2)

    worker.send(signum)
    process.wait_until(lambda: sum(len(entry.split()) for entry in bench.state().get("front", [])) >= 1, timeout=1)
    assert len(bench.ledger.read().runs) == 2
    gate.touch()  # the running ones may end

    assert worker.wait(5) == 0
    assert waiting(bench) == 58
    assert bench.state("consumers") == {}
    bench.burst()
    assert bench.ledger.read().starts == dict.fromkeys(keys, 1)


def test_jobs_that_do_not_end_within_the_grace_time_are_cancelled_and_handed_back(bench: Bench, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    bench.task["wait_for"].enqueue_many([(f"j{i}", str(gate)) for i in range(10)])
    worker = bench.start(concurrency=3, grace=0.3)
    process.wait_until(lambda: len(bench.ledger.read().runs) == 3)

    worker.send(signal.SIGTERM)

    assert worker.wait(5) == 0
    assert waiting(bench) == 10
    assert bench.ledger.read().unfinished() == []  # their `finally` ran
    gate.touch()
    bench.burst()
    assert bench.ledger.read().missing(f"j{i}" for i in range(10)) == set()
    assert bench.stat("succeeded") == 10
    assert bench.stat("failed") == 0  # it was no attempt


def test_a_second_signal_ends_a_worker_at_once(bench: Bench, tmp_path: Path) -> None:
    bench.task["wait_for"].enqueue("a", str(tmp_path / "never"))
    worker = bench.start(grace=60)
    bench.wait_started("a")
    worker.send(signal.SIGTERM)
    process.wait_until(lambda: bench.state().get("consumers"))

    worker.send(signal.SIGTERM)

    assert worker.wait(5) == 0
    assert waiting(bench) == 1


def test_a_thread_that_cannot_be_stopped_does_not_hold_up_the_end(bench: Bench) -> None:
    bench.task["block"].enqueue("a", 20)
    worker = bench.start(grace=0.2)
    bench.wait_started("a")

    began = time.monotonic()
    worker.send(signal.SIGTERM)

    assert worker.wait(10) == 0
    assert time.monotonic() - began < 5
    assert waiting(bench) == 1


@pytest.mark.parametrize("task", ["stubborn", "defiant"])
def test_a_job_that_does_not_listen_does_not_hold_up_the_end(bench: Bench, task: str) -> None:
    bench.task[task].using(timeout=None).enqueue("a", 1000)
    worker = bench.start(grace=0.2)
    bench.wait_started("a")

    began = time.monotonic()
    worker.send(signal.SIGTERM)

    assert worker.wait(10) == 0
    assert time.monotonic() - began < 5
    assert waiting(bench) == 1


def test_a_worker_that_waits_for_jobs_ends_at_once(bench: Bench) -> None:
    worker = bench.start()
    bench.task["note"].enqueue("a")
    bench.wait_ended("a")

    began = time.monotonic()
    worker.send(signal.SIGTERM)

    assert worker.wait(5) == 0
    assert time.monotonic() - began < 2
    assert "Traceback" not in worker.stderr


def test_a_burst_runs_what_waits_and_what_is_due_soon_and_leaves_the_rest(bench: Bench) -> None:
    bench.task["note"].enqueue_many([(f"j{i}",) for i in range(500)])
    bench.task["note"].using(delay=0.6).enqueue("soon")
    bench.task["note"].using(delay=60).enqueue("later")

    bench.burst()

    reading = bench.ledger.read()
    assert reading.missing([*(f"j{i}" for i in range(500)), "soon"]) == set()
    assert reading.repeated() == {}
    state = bench.state("scheduled", "stream", "front", "consumers", "pending")
    assert len(state.pop("scheduled")) == 1
    assert state == {}


def test_a_burst_ends_with_an_empty_queue(bench: Bench) -> None:
    bench.burst()

    assert bench.state("consumers", "pending", "stream") == {}


def test_a_worker_leaves_no_process_behind_even_when_it_is_killed(bench: Bench) -> None:
    worker = bench.start()
    hearts = {pid for pid, command in process.descendants().items() if "fastq.worker.heart" in command}
    assert len(hearts) == 1

    worker.kill()

    for pid in hearts:
        process.wait_gone(pid)


def test_a_heart_that_is_killed_is_replaced(bench: Bench) -> None:
    worker = bench.start()
    (heart,) = (pid for pid, command in process.descendants().items() if "fastq.worker.heart" in command)
    os.kill(heart, signal.SIGKILL)

    process.wait_until(
        lambda: {pid for pid, command in process.descendants().items() if "fastq.worker.heart" in command} - {heart}
    )

    bench.task["note"].enqueue("a")
    bench.wait_ended("a")
    assert worker.returncode is None


def test_no_password_is_seen_in_the_list_of_processes(bench: Bench) -> None:
    bench.start()

    commands = [command for command in process.descendants().values() if "fastq.worker.heart" in command]

    assert len(commands) == 1
    assert bench.url not in commands[0]
