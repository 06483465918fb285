"""What is measured of each system: loads, and the figures that each of them brings about."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.figures.latency import percentile
from bench.peers.environments import Installed
from bench.peers.place import LoadFailed, Place

CALLERS = 100  # in flight
PACED, PACE = 1000, 200.0  # jobs for the latency, and how many a second
FEWEST = 50
CALM = 0.3  # seconds in which what has run is settled, and in which a worker becomes idle


@dataclass(frozen=True)
class Figure:
    """A column of the table."""

    name: str
    heading: str
    unit: str
    less_is_better: bool = False


@dataclass(frozen=True)
class Load:
    """What yields figures; `measure(place, installed, jobs)` returns one value for each of them, in order."""

    name: str
    figures: tuple[Figure, ...]
    measure: Callable[[Place, Installed, int], tuple[float, ...]]

    def jobs(self, installed: Installed, scale: float) -> int:
        """How many jobs a system is given; 0 if it cannot do this."""
        full = installed.system.jobs.get(self.name, PACED if self.name == "latency" else 0)
        return max(FEWEST, round(full * scale)) if full else 0


# --- enqueue


def _one(task: str) -> Callable[[Place, Installed, int], tuple[float]]:
    return lambda place, installed, jobs: (place.produce(installed, "one", task=task, jobs=jobs),)


def _in_flight(task: str) -> Callable[[Place, Installed, int], tuple[float]]:
    return lambda place, installed, jobs: (place.produce(installed, "in_flight", task=task, jobs=jobs, callers=CALLERS),)


def _bulk(task: str) -> Callable[[Place, Installed, int], tuple[float]]:
    return lambda place, installed, jobs: (place.produce(installed, "bulk", task=task, jobs=jobs),)


def _fill(place: Place, installed: Installed, jobs: int, lone: bool) -> float:
    """Enqueue jobs one by one, or else the fastest way; and how many bytes each takes on the server."""
    before = place.used_bytes()
    if "bulk" in installed.system.jobs and not lone:
        place.produce(installed, "bulk", task="noop", jobs=jobs, warm=False)
    elif "in_flight" in installed.system.jobs and not lone:
        place.produce(installed, "in_flight", task="noop", jobs=jobs, callers=CALLERS, warm=False)
    else:
        place.produce(installed, "one", task="noop", jobs=jobs, warm=False)
    return (place.used_bytes() - before) / jobs


# --- run


def _drain(place: Place, installed: Installed, jobs: int, processes: int, lone: bool = False) -> tuple[float, float, float]:
    """Jobs a second from the first to the last, the server's microseconds for each, and its bytes while it waited."""
    size = _fill(place, installed, jobs, lone)
    before = place.cpu_us()
    with place.worker(installed, processes) as worker:
        worker.wait(lambda: worker.tally.count().done >= jobs)
        time.sleep(CALM)
        cost = (place.cpu_us() - before) / jobs
        done, first, last = worker.tally.count()
    if done != jobs:
        raise LoadFailed(f"{done} jobs ran of {jobs}")
    return (jobs - 1) / (last - first) * 1e9, cost, size


def _drain_1(place: Place, installed: Installed, jobs: int) -> tuple[float, float, float]:
    return _drain(place, installed, jobs, 1)


def _drain_2(place: Place, installed: Installed, jobs: int) -> tuple[float]:
    return _drain(place, installed, jobs, 2)[:1]


def _lone(place: Place, installed: Installed, jobs: int) -> tuple[float, float, float]:
    return _drain(place, installed, jobs, 1, lone=True)


def _latency(place: Place, installed: Installed, jobs: int) -> tuple[float, float]:
    """Milliseconds from the call that enqueues to the first line of the job, on a worker that has run a few: median, p99."""
    with place.worker(installed, 1) as worker:
        place.produce(installed, "one", task="noop", jobs=20, warm=False)
        worker.wait(lambda: worker.tally.count().done >= 20)
        time.sleep(CALM)
        place.produce(installed, "pace", jobs=jobs, per_second=PACE)
        worker.wait(lambda: worker.tally.delay_count >= jobs)
        delays = worker.tally.delays()
    return percentile(delays, 0.5) * 1000, percentile(delays, 0.99) * 1000


LOADS = (
    Load("one", (Figure("one", "one by one", "jobs/s"),), _one("noop")),
    Load("in_flight", (Figure("in_flight", "in flight", "jobs/s"),), _in_flight("noop")),
    Load("bulk", (Figure("bulk", "bulk", "jobs/s"),), _bulk("noop")),
    Load("unique_one", (Figure("unique_one", "unique one", "jobs/s"),), _one("once")),
    Load("unique_in_flight", (Figure("unique_in_flight", "u. in flight", "jobs/s"),), _in_flight("once")),
    Load("unique_bulk", (Figure("unique_bulk", "unique bulk", "jobs/s"),), _bulk("once")),
    Load(
        "drain_1",
        (
            Figure("drain_1", "drain 1", "jobs/s"),
            Figure("server_us", "server us", "us/job", less_is_better=True),
            Figure("bytes", "bytes", "bytes/job", less_is_better=True),
        ),
        _drain_1,
    ),
    Load("drain_2", (Figure("drain_2", "drain 2", "jobs/s"),), _drain_2),
    Load(
        "lone",
        (
            Figure("lone", "lone drain 1", "jobs/s"),
            Figure("lone_server_us", "lone us", "us/job", less_is_better=True),
            Figure("lone_bytes", "lone bytes", "bytes/job", less_is_better=True),
        ),
        _lone,
    ),
    Load(
        "latency",
        (Figure("p50", "p50 ms", "ms", less_is_better=True), Figure("p99", "p99 ms", "ms", less_is_better=True)),
        _latency,
    ),
)
