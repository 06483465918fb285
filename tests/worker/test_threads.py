"""Sync tasks in threads: how they are told to stop, and what becomes of those that do not listen."""

import asyncio
import contextlib
import contextvars
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fastq import Backoff, FastQ, current_job
from fastq.worker import deadlines, threads
from fastq.worker.threads import Threads
from fastq_ext.runner import current_run, set_current_run
from tests.support import errors, process, sync_tasks
from tests.support.process import Child
from tests.worker.conftest import Bench

AT_ONCE = Backoff(retries=1, delay=0)


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What jobs wait for that do not listen; it comes at the end of the test at the latest."""
    event = threading.Event()
    yield event
    event.set()


def in_threads(bench: Bench) -> FastQ:
    return sync_tasks.build(bench.url, bench.namespace)


# --- out of time


def test_a_job_out_of_time_gives_its_slot_back_at_once_and_follows_its_retries(bench: Bench, release: threading.Event) -> None:
    seen: list[tuple[int, float]] = []
    told = threading.Event()

    def hang() -> None:
        job = current_job()
        seen.append((job.attempt, time.monotonic()))
        if job.attempt == 1:
            release.wait(60)
            if job.cancelled:
                told.set()

    bench.app.task(name="hang", timeout=0.3, retries=AT_ONCE)(hang).enqueue()
    bench.burst(concurrency=1)

    (first, began), (second, again) = seen
    assert (first, second) == (1, 2)
    assert again - began < 0.3 + 0.2 + 0.5  # and half a second for a busy machine
    before = bench.state("stats")
    assert bench.stat("succeeded") == bench.stat("failed") == 1
    release.set()
    assert told.wait(5)
    assert bench.state("stats") == before  # its late end counts no more


def test_the_error_of_a_job_out_of_time_is_a_timeout(bench: Bench, release: threading.Event) -> None:
    def hang() -> None:
        release.wait(60)

    job = bench.app.task(name="hang", timeout=0.2, retries=0, track=True)(hang).enqueue()
    bench.burst()

    assert job.status() == "dead"
    with pytest.raises(Exception, match=r"TimeoutError: the attempt ran longer than 0\.2 s"):
        job.result(timeout=1)


def test_threads_that_are_left_to_their_jobs_are_made_up_for(
    bench: Bench, release: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    together = threading.Barrier(threads.THREADS, timeout=20)

    def hang(number: int) -> None:
        release.wait(60)

    def meet(number: int) -> None:
        together.wait()

    bench.app.task(name="hang", timeout=0.3, retries=0)(hang).enqueue_many([(i,) for i in range(threads.THREADS)])
    bench.app.task(name="meet", retries=0)(meet).enqueue_many([(i,) for i in range(threads.THREADS)])
    with caplog.at_level(logging.WARNING, "fastq.worker"):
        bench.burst(concurrency=threads.THREADS)

    assert (bench.stat("succeeded"), bench.stat("dead:hang")) == (threads.THREADS, threads.THREADS)
    told = [record.getMessage() for record in caplog.records if "a thread cannot be stopped" in record.getMessage()]
    assert len(told) == 1  # once for the task, not for each job
    assert "task=hang" in told[0]


def test_a_thread_ends_with_the_job_that_it_was_left_to(bench: Bench, release: threading.Event) -> None:
    hanging: list[threading.Thread] = []

    def hang() -> None:
        hanging.append(threading.current_thread())
        release.wait(60)

    bench.app.task(name="hang", timeout=0.2, retries=0)(hang).enqueue()
    bench.burst()
    assert hanging[0].is_alive()
    release.set()

    hanging[0].join(5)
    assert not hanging[0].is_alive()


def test_the_threads_of_a_worker_end_with_it(bench: Bench) -> None:
    used: list[threading.Thread] = []

    def look() -> None:
        used.append(threading.current_thread())

    bench.app.task(name="look")(look).enqueue_many([()] * 20)
    bench.burst()

    for thread in used:
        thread.join(5)
        assert not thread.is_alive()


def test_the_time_that_a_job_waits_for_a_thread_is_not_its_own(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "THREADS", 1)
    monkeypatch.setattr("fastq.worker.places.LONGEST_WAIT", 60)  # and so it stays here, though it waits

    def doze() -> None:
        time.sleep(0.2)

    bench.app.task(name="doze", timeout=0.5, retries=0)(doze).enqueue_many([()] * 5)
    bench.burst(concurrency=5)

    assert (bench.stat("succeeded"), bench.stat("dead")) == (5, 0)


# --- cancelled


def test_a_job_that_is_cancelled_is_told_and_ends_as_cancelled_when_it_stops(bench: Bench) -> None:
    def listen() -> str:
        job = current_job()
        bench.app.job(job.uid).cancel()
        while not job.cancelled:
            time.sleep(0.005)
        return "stopped half way"

    job = bench.app.task(name="listen", result_ttl=60)(listen).enqueue()
    bench.burst()

    assert job.status() == "cancelled"
    assert bench.stat("failed") == 0


def test_a_job_that_ends_without_having_looked_has_succeeded(bench: Bench) -> None:
    def ignore() -> str:
        bench.app.job(current_job().uid).cancel()
        run = current_run()
        assert run is not None
        process.wait_until(lambda: run.reason)
        return "all done"

    job = bench.app.task(name="ignore", result_ttl=60)(ignore).enqueue()
    bench.burst()

    assert (job.status(), job.result()) == ("succeeded", "all done")


def test_a_job_that_does_not_listen_is_left_to_its_thread_after_a_while(
    bench: Bench, release: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "PATIENCE", 0.3)
    left = threading.Event()

    def ignore() -> None:
        bench.app.job(current_job().uid).cancel()
        release.wait(60)
        left.set()

    job = bench.app.task(name="ignore", track=True)(ignore).enqueue()
    bench.task["note"].enqueue("next")
    bench.burst(concurrency=1)

    assert job.status() == "cancelled"
    assert bench.ledger.read().missing(["next"]) == set()
    before = bench.state("stats")
    release.set()
    assert left.wait(5)
    assert bench.state("stats") == before


# --- everything else


def test_context_variables_of_a_thread_are_those_of_its_job(bench: Bench) -> None:
    place = contextvars.ContextVar("place", default="nowhere")
    seen: list[str] = []

    def look(number: int) -> None:
        seen.append(place.get())
        place.set(f"job {number}")

    token = place.set("where the worker was started")
    bench.app.task(name="look")(look).enqueue_many([(i,) for i in range(40)])
    bench.burst(concurrency=2)
    place.reset(token)

    assert seen == ["where the worker was started"] * 40


@pytest.mark.parametrize("task", ["fail", "async_fail"])
def test_c53_whatever_a_job_raises_is_told_in_bounded_words_and_hurts_nobody(bench: Bench, task: str) -> None:
    app = in_threads(bench)
    jobs = {}
    for kind in errors.KINDS:
        app.tasks["note"].enqueue_many([(f"{kind} {i}",) for i in range(20)])
        jobs[kind] = app.tasks[task].enqueue(kind, kind)
    everything = [f"{kind} {i}" for kind in errors.KINDS for i in range(20)]
    app.worker(burst=True).run()

    assert bench.ledger.read().missing(everything) == set()
    for kind, job in jobs.items():
        with pytest.raises(Exception, match="is dead") as caught:
            job.result(timeout=1)
        assert 0 < len(str(caught.value)) < 65536, kind
        assert len(caught.value.details["traceback"]) < 65536, kind
    assert bench.stat("dead") == len(errors.KINDS)


# --- sharing


def test_jobs_that_would_wait_for_a_thread_go_to_a_worker_that_has_one(
    bench: Bench, start_sync: Callable[..., Child], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    keys = [f"j{i}" for i in range(2 * threads.THREADS)]
    in_threads(bench).tasks["wait_for"].enqueue_many([(key, str(gate)) for key in keys])
    start_sync(concurrency=100)
    process.wait_until(lambda: len(bench.ledger.read().runs) == threads.THREADS)

    start_sync(concurrency=100)
    bench.wait_started(*keys)  # though none has ended
    gate.touch()
    bench.wait_settled()

    assert bench.ledger.read().starts == dict.fromkeys(keys, 1)
    assert bench.stat("succeeded") == len(keys)


def test_a_slot_whose_job_was_handed_back_runs_others_when_there_is_a_thread_again(
    bench: Bench, start_sync: Callable[..., Child], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    keys = [f"j{i}" for i in range(100)]
    in_threads(bench).tasks["wait_for"].enqueue_many([(key, str(gate)) for key in keys])
    start_sync(concurrency=50)
    process.wait_until(lambda: len(bench.ledger.read().runs) == threads.THREADS)
    process.wait_until(lambda: len(bench.state("front").get("front", [])) > 0)  # some were handed back
    gate.touch()

    bench.wait_ended(*keys)
    bench.wait_settled()
    assert bench.ledger.read().starts == dict.fromkeys(keys, 1)


class Doubtful:
    """A run whose worker may look dead until it has been asked `times` times; then it is `alive`, or has become another's."""

    reason = ended = None

    def __init__(self, times: int, alive: bool) -> None:
        self.left, self.alive = times, True
        self._after = alive

    def wait(self) -> None:
        pass

    def start(self) -> bool:
        self.left -= 1
        self.alive = self._after or self.left > 0
        return self.alive and self.left <= 0


@pytest.mark.parametrize("alive", [True, False])
def test_a_job_that_has_its_thread_starts_when_its_worker_is_known_to_live_or_never(alive: bool) -> None:
    """The worker may have been frozen between the two, and the job brought back."""
    run, ran = Doubtful(3, alive), []

    async def call() -> None:
        threads = Threads(asyncio.get_running_loop())
        set_current_run(run)
        try:
            await threads.caller(lambda: ran.append(run.left))()
        finally:
            set_current_run(None)
            threads.close()

    with contextlib.nullcontext() if alive else pytest.raises(asyncio.CancelledError):
        asyncio.run(call())

    assert ran == ([0] if alive else [])
    assert run.left == 0
