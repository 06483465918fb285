"""How fast a fleet is, and what waits while all of it is replaced."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure
from bench.figures.latency import percentile
from bench.fleet_tasks import app, nap, rounds_of, sign, signed, spin
from bench.pace import pace
from bench.stage import Stage
from fastq import FastQ, Task

SPIN = 20e-6  # seconds of Python in a job
NAP = 0.1
PER_SECOND, SECONDS, BATCH = 5000, 30, 50  # of the load under which a fleet is replaced
RECYCLES = 4  # of each process in that time, by its number of jobs
TIMEOUT = 180.0


class Fleet:
    """A running `fastq worker` and its queue."""

    def __init__(self, stage: Stage, program: subprocess.Popen[str]) -> None:
        self._program = program
        self._queue = _app(stage).queue()
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def end(self) -> None:
        """Stop it, and read the last of its log."""
        self._program.send_signal(signal.SIGTERM)
        self._reader.join()

    def done(self) -> int:
        """Jobs that have ended well."""
        return self._queue.counts().totals.get("succeeded", 0)

    def wait_serving(self, processes: int) -> None:
        """Wait until so many of its processes serve."""
        self._wait(lambda: len(self._queue.workers()), processes, "processes serve")

    def wait_done(self, jobs: int) -> tuple[float, int]:
        """Wait until so many have; when that was seen, and how many it were then."""
        return self._wait(self.done, jobs, "jobs have ended")

    def reload(self) -> None:
        """Replace all of its processes."""
        self._program.send_signal(signal.SIGHUP)

    def _wait(self, count: Callable[[], int], least: int, what: str) -> tuple[float, int]:
        deadline = time.monotonic() + TIMEOUT
        while (counted := count()) < least:
            if time.monotonic() > deadline or self._program.poll() is not None:
                raise TimeoutError(f"{counted} of {least} {what}\n" + "\n".join(self.log[-10:]))
            time.sleep(0.02)
        return time.monotonic(), counted

    def _read(self) -> None:
        assert self._program.stderr is not None
        for line in self._program.stderr:
            self.log.append(line.rstrip())


@contextlib.contextmanager
def _fleet(stage: Stage, *options: object, **environment: str) -> Iterator[Fleet]:
    command = [sys.executable, "-P", "-m", "fastq.cli", "worker", "bench.fleet_tasks:app", *map(str, options)]
    path = os.pathsep.join(filter(None, sys.path))
    env = {**os.environ, "FASTQ_URL": stage.url, "PYTHONPATH": path, **environment}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as program:
        fleet = Fleet(stage, program)
        try:
            yield fleet
        finally:
            fleet.end()


def _app(stage: Stage) -> FastQ:
    """The app of the fleet, on this server."""
    return FastQ(stage.url, namespace=app.config.namespace)


def _producing(stage: Stage, task: Task[Any, Any]) -> Task[Any, Any]:
    """A task of the fleet, to be enqueued on this server."""
    return _app(stage).task(name=task.name)(task.fn)


def _drained(stage: Stage, processes: int) -> float:
    """Jobs a second of 20 us each, while all processes serve."""
    stage.clear()
    jobs = stage.jobs(200_000)
    with _fleet(stage, "--processes", processes, FASTQ_BENCH_ROUNDS=str(rounds_of(SPIN))) as fleet:
        fleet.wait_serving(processes)
        _producing(stage, spin).enqueue_many((() for _ in range(jobs)), handles=False)
        begun, before = fleet.wait_done(jobs // 10)
        ended, after = fleet.wait_done(jobs * 9 // 10)
    return (after - before) / (ended - begun)


def _one(stage: Stage) -> float:
    return _drained(stage, 1)


def _two(stage: Stage) -> float:
    return _drained(stage, 2)


def _sleeping(stage: Stage) -> float:
    """8 processes with 50 slots each, jobs that sleep 100 ms."""
    stage.clear()
    most = 8 * 50 / NAP
    _producing(stage, nap).enqueue_many(((NAP,) for _ in range(int(12 * most))), handles=False)
    with _fleet(stage, "--processes", 8, "--concurrency", 50) as fleet:
        begun, before = fleet.wait_done(int(3 * most))  # all serve by now
        ended, after = fleet.wait_done(int(8 * most))
    return (after - before) / (ended - begun)


def replacing(stage: Stage) -> list[float]:
    """Seconds that jobs wait, sorted, while a fleet of 2 at 5,000 jobs/s is recycled and restarted.

    Raises when a job is lost or repeated, or too few processes were replaced.
    """
    stage.clear()
    seconds = stage.jobs(SECONDS * 1000) / 1000
    enqueue = _producing(stage, sign).enqueue_many
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder, "ledger")
        ledger.touch()
        options = ("--processes", 2, "--max-jobs", int(seconds * PER_SECOND / 2 / RECYCLES))
        with _fleet(stage, *options, FASTQ_BENCH_LEDGER=str(ledger)) as fleet:
            enqueue([(-1, time.monotonic())], handles=False)
            fleet.wait_done(1)
            jobs = _paced(enqueue, seconds, half_way=fleet.reload)
            fleet.wait_done(jobs + 1)
        replaced = sum("another one takes its place" in line for line in fleet.log)
        found = [(number, delay) for number, delay in signed(ledger) if number >= 0]
    numbers = sorted(number for number, _ in found)
    assert numbers == list(range(jobs)), f"{jobs} jobs, {len(numbers)} runs of {len(set(numbers))} of them"
    assert replaced >= 4, f"only {replaced} processes were replaced"
    return sorted(delay for _, delay in found)


def _paced(enqueue: Callable[..., object], seconds: float, half_way: Callable[[], None]) -> int:
    """Enqueue at a steady pace; how many it were."""
    batches = int(seconds * PER_SECOND / BATCH)
    for batch in pace(batches, PER_SECOND / BATCH):
        now = time.monotonic()
        enqueue([(batch * BATCH + number, now) for number in range(BATCH)], handles=False)
        if batch == batches // 2:
            half_way()
    return batches * BATCH


def _p99(stage: Stage) -> float:
    return 1000 * percentile(replacing(stage), 0.99)


FIGURES = [
    Figure("fleet of 2, 20 us", "jobs/s", _two, _one, bounds={5: 1.4}, steady=False),
    Figure("fleet, asleep", "jobs/s", _sleeping, bounds={5: 3600}, steady=False),
    Figure("replaced fleet, p99", "ms", _p99, less_is_better=True, bounds={5: 1000}, steady=False),
]
