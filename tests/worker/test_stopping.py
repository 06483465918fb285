"""SIGTERM in the middle of jobs: those that can end do, others are another worker's, and the process is gone in time."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import process, sync_tasks
from tests.support.process import Child
from tests.worker.conftest import Bench

GRACE = 0.5


def steps_done(bench: Bench, key: str) -> int:
    return sum(run.ended is not None for run in bench.ledger.read().runs if run.key.startswith(f"{key} step"))


def waiting(bench: Bench) -> int:
    """How many jobs stand in the streams, in nobody's hands."""
    state = bench.state("stream", "front", "suspects", "pending")
    assert [held for stream in state.pop("pending", {}).values() for held in stream.values() if held] == []
    return sum(len(entry.split()) for entries in state.values() for entry in entries)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("task", ["steps", "async_steps"])
@pytest.mark.parametrize("executor", ["thread", "process"])
def test_c51_a_job_that_ends_within_the_grace_time_ends_as_ever(
    bench: Bench, start_sync: Callable[..., Child], task: str, executor: str, signum: signal.Signals
) -> None:
    app = sync_tasks.build(bench.url, bench.namespace, executor=executor)
    job = app.tasks[task].enqueue("a", 1.0)
    worker = start_sync(executor=executor, grace=10)
    process.wait_until(lambda: steps_done(bench, "a") > 5)

    worker.send(signum)
    worker.wait_line("ends: it fetches no more")
    app.tasks["note"].enqueue("late")

    assert worker.wait(10) == 0
    assert (steps_done(bench, "a"), bench.started("a end"), job.status()) == (50, 1, "succeeded")
    assert bench.started("late") == 0
    assert waiting(bench) == 1


def test_c51_past_the_grace_time_an_async_job_is_cancelled_and_its_finally_runs(
    bench: Bench, start_sync: Callable[..., Child]
) -> None:
    sync_tasks.build(bench.url, bench.namespace).tasks["async_steps"].enqueue("a", 60.0)
    worker = start_sync(grace=GRACE)
    process.wait_until(lambda: steps_done(bench, "a") > 0 or bench.started("a step 0"))

    began = time.monotonic()
    worker.send(signal.SIGTERM)

    assert worker.wait(10) == 0
    assert GRACE <= time.monotonic() - began < GRACE + 1 + 1  # and a second for a busy machine
    assert bench.started("a end") == 1
    assert (waiting(bench), bench.stat("failed")) == (1, 0)


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_c51_past_the_grace_time_a_sync_job_is_handed_back_though_it_still_sleeps(
    bench: Bench, start_sync: Callable[..., Child], tmp_path: Path, executor: str
) -> None:
    gate = tmp_path / "gate"
    sync_tasks.build(bench.url, bench.namespace, executor=executor).tasks["wait_for"].enqueue("a", str(gate))
    worker = start_sync(executor=executor, grace=GRACE)
    bench.wait_started("a")

    began = time.monotonic()
    worker.send(signal.SIGTERM)

    assert worker.wait(10) == 0
    assert GRACE <= time.monotonic() - began < GRACE + 1 + 1
    worker.wait_line("over")  # the program went on behind run(), and ended by itself
    assert (waiting(bench), bench.stat("failed")) == (1, 0)
    gate.touch()
    start_sync(executor=executor)
    bench.wait_ended("a")
    bench.wait_settled()
    assert [run.attempt for run in bench.ledger.read().runs] == [1, 1]


def test_c51_a_thread_that_asyncio_has_lent_does_not_hold_up_the_end(
    bench: Bench, start_sync: Callable[..., Child], tmp_path: Path
) -> None:
    sync_tasks.build(bench.url, bench.namespace).tasks["async_wait_in_a_thread"].enqueue("a", str(tmp_path / "never"))
    worker = start_sync(grace=0.1)
    bench.wait_started("a")

    began = time.monotonic()
    worker.send(signal.SIGTERM)

    assert worker.wait(10) == 0
    assert time.monotonic() - began < 0.1 + 1 + 1
    assert waiting(bench) == 1


@pytest.mark.parametrize("executor", ["thread", "process"])
@pytest.mark.parametrize("pause", [0.0, 0.3])
def test_c51_a_second_signal_ends_at_once_and_loses_nothing(
    bench: Bench, start_sync: Callable[..., Child], tmp_path: Path, executor: str, pause: float
) -> None:
    gate = tmp_path / "gate"
    app = sync_tasks.build(bench.url, bench.namespace, executor=executor)
    keys = [f"j{i}" for i in range(200)]
    app.tasks["wait_for"].enqueue_many([(key, str(gate)) for key in keys[:100]])
    app.tasks["note"].enqueue_many([(key,) for key in keys[100:]])
    worker = start_sync(executor=executor, grace=60, concurrency=20)
    process.wait_until(lambda: len(bench.ledger.read().runs) >= 2)

    worker.send(signal.SIGTERM)
    worker.wait_line("ends: it fetches no more")
    time.sleep(pause)
    began = time.monotonic()
    worker.send(signal.SIGTERM)

    assert worker.wait(10) == 0
    assert time.monotonic() - began < 1 + 1
    gate.touch()
    start_sync(executor=executor)
    bench.wait_ended(*keys, timeout=30)
    bench.wait_settled()
    assert bench.stat("failed") == 0
    assert waiting(bench) == 0


def test_what_a_worker_has_not_started_is_run_by_another_within_a_second(
    bench: Bench, start_sync: Callable[..., Child], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    app = sync_tasks.build(bench.url, bench.namespace)
    jobs = [app.tasks["wait_for"].prepare("holds its slot", str(gate)), *(app.tasks["note"].prepare(f"j{i}") for i in range(50))]
    app.enqueue_many(jobs)  # one frame, so the first worker has all of them
    first = start_sync(concurrency=1, grace=30)
    bench.wait_started("holds its slot")

    first.send(signal.SIGTERM)
    process.wait_until(lambda: len("".join(bench.state("front").get("front", [])).split()) >= 1, timeout=1)
    start_sync(concurrency=1)
    bench.wait_ended(*(f"j{i}" for i in range(50)))

    assert first.returncode is None  # it still waits for its own job
    assert bench.started("holds its slot") == 1
    gate.touch()
    assert first.wait(5) == 0
    bench.wait_settled()
    assert bench.stat("succeeded") == 51


def test_an_exit_in_a_task_that_a_job_has_started_does_not_end_the_worker(
    bench: Bench, start_sync: Callable[..., Child]
) -> None:
    app = sync_tasks.build(bench.url, bench.namespace)
    job = app.tasks["async_exit"].enqueue("a")
    worker = start_sync()
    process.wait_until(lambda: job.status() == "dead")
    app.tasks["note"].enqueue("b")

    bench.wait_ended("b")
    assert worker.returncode is None
    assert "wants to end the process" in worker.stderr
