"""The metrics of a fleet: what its processes have written on their boards, added up, and what its queues hold by the server.

Needs prometheus-client: `fastq-queue[metrics]`.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from fastq.broker import inspection
from fastq.broker.broker import Broker
from fastq.config import Config
from fastq.errors import BrokerError
from fastq.keys import queue_keys
from fastq.queues import QueueCounts, shown
from fastq.worker import board
from fastq.worker.meter import BOUNDS, COUNT, FETCHES, PROCESS, RUNNING, RUNS, SLOTS, STEPPED, WAITS, WELL_UNTIL

PATIENCE = 2.0  # seconds for the server's answer: a scrape has not much more
STEPS_WITHIN = 5.0  # seconds in which a healthy event loop has made a step; the meter is told each second
STATES = ("waiting", "running", "scheduled", "retrying", "dead")

Numbers = dict[board.Key, list[float]]


class Boards:
    """All boards of a folder. What processes that have ended had counted is kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ended: Numbers = defaultdict(list)
        self._lock = threading.Lock()

    def read(self) -> tuple[Numbers, list[list[float]]]:
        """The counts of all processes there ever were, added up, and how each of those that live is (meter.py has the cells)."""
        with self._lock:
            living = []
            sums: Numbers = defaultdict(list)
            for path in sorted(self._folder.glob(f"*{board.SUFFIX}")):
                lives = board.is_written(path)  # before it is read: nothing comes after its end
                numbers = board.read(path)
                process = numbers.pop((PROCESS,), None)
                if lives:
                    _add(sums, numbers)
                    living += [process] if process else []
                else:
                    _add(self._ended, numbers)
                    board.remove(path)
            _add(sums, self._ended)
            return sums, living

    def unready(self) -> str | None:
        """Why the fleet is not ready; None when it is: it fetches jobs, and the heartbeats of all that do are on time."""
        now = time.monotonic()
        fetching = [process for process in self.read()[1] if process[FETCHES]]
        if not fetching:
            return "no worker process fetches jobs"
        if late := sum(process[WELL_UNTIL] < now for process in fetching):
            return f"the heartbeats of {late} of {len(fetching)} worker processes are late"
        if stuck := sum(process[STEPPED] < now - STEPS_WITHIN for process in fetching):
            return f"the event loops of {stuck} of {len(fetching)} worker processes are held"
        return None


class FleetCollector(Collector):
    """Collects for prometheus_client. `queues` tells the queues that the fleet serves.

    >>> CollectorRegistry().register(FleetCollector(app.config, Boards(folder), lambda: ["mail"]))  # doctest: +SKIP
    """

    def __init__(self, config: Config, boards: Boards, queues: Callable[[], Sequence[str]]) -> None:
        self._namespace = config.namespace
        self._client = Broker(config).new_sync_client(timeout=PATIENCE, patience=PATIENCE)
        self._boards = boards
        self._queues = queues

    def collect(self) -> Iterator[Metric]:
        """All metrics, as of now."""
        sums, living = self._boards.read()
        yield from _fleet(living)
        yield from _jobs(sums)
        yield _histogram("fastq_wait_seconds", "From when a job was due until its first attempt began.", WAITS, sums)
        yield _histogram("fastq_run_seconds", "How long attempts took.", RUNS, sums)
        yield from self._server()

    def describe(self) -> Iterable[Metric]:
        """Nothing: the names are known when all has been collected."""
        return []

    def _server(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("fastq_server_up", "Whether the server answered when it was asked for the metrics of queues.")
        found: dict[str, tuple[QueueCounts, int]] = {}
        try:
            for name in self._queues():
                keys = queue_keys(self._namespace, name)
                counts, pace = self._client.call(inspection.counts(keys)), self._client.call(inspection.pace(keys))
                found[name] = shown(counts), pace.oldest_ms
        except BrokerError:
            found.clear()
        up.add_metric([], bool(found))
        yield up
        yield from _queues(found)


def _fleet(living: Sequence[Sequence[float]]) -> Iterator[Metric]:
    for name, text, value in (
        ("fastq_processes", "Worker processes that fetch jobs.", sum(process[FETCHES] for process in living)),
        ("fastq_slots", "Jobs that can run at once.", sum(process[SLOTS] for process in living)),
        ("fastq_running", "Jobs that run.", sum(process[RUNNING] for process in living)),
    ):
        yield GaugeMetricFamily(name, text, value=value)


def _jobs(sums: Numbers) -> Iterator[Metric]:
    ended = CounterMetricFamily("fastq_jobs", "Jobs that have ended here, by how.", labels=("queue", "task", "outcome"))
    failed = CounterMetricFamily("fastq_failed_attempts", "Attempts that have failed here.", labels=("queue", "task"))
    for key, (value,) in _of(COUNT, sums):
        if key[-1] == "failed":
            failed.add_metric(key[:-1], value)
        else:
            ended.add_metric(key, value)
    yield ended
    yield failed


def _histogram(name: str, text: str, kind: str, sums: Numbers) -> Metric:
    family = HistogramMetricFamily(name, text, labels=("queue", "task"))
    bounds = [*map(floatToGoString, BOUNDS), "+Inf"]
    for key, (*counts, total) in _of(kind, sums):
        if any(counts):
            family.add_metric(key, list(zip(bounds, accumulate(counts), strict=True)), total)
    return family


def _queues(found: dict[str, tuple[QueueCounts, int]]) -> Iterator[Metric]:
    jobs = GaugeMetricFamily("fastq_queue_jobs", "Jobs that a queue holds.", labels=("queue", "state"))
    oldest = GaugeMetricFamily("fastq_queue_oldest_wait_seconds", "How long the oldest waiting job waits.", labels=("queue",))
    workers = GaugeMetricFamily("fastq_queue_workers", "Workers that serve a queue, of all fleets.", labels=("queue",))
    paused = GaugeMetricFamily("fastq_queue_paused", "Whether a queue is paused.", labels=("queue",))
    events = CounterMetricFamily(
        "fastq_queue_events",
        "What has happened in a queue, counted by the server over all fleets: the same from each of them.",
        labels=("queue", "event"),
    )
    for name, (counts, oldest_ms) in found.items():
        for state in STATES:
            jobs.add_metric([name, state], getattr(counts, state))
        oldest.add_metric([name], max(0, oldest_ms) / 1000)
        workers.add_metric([name], counts.workers)
        paused.add_metric([name], counts.paused)
        for event, number in counts.totals.items():
            if ":" not in event:
                events.add_metric([name, event], number)
    yield from (jobs, oldest, workers, paused, events)


def _of(kind: str, sums: Numbers) -> Iterator[tuple[list[str], list[float]]]:
    """The numbers of one kind, by their labels."""
    return ((list(key[1:]), numbers) for key, numbers in sums.items() if key[0] == kind)


def _add(sums: Numbers, numbers: Numbers) -> None:
    for key, values in numbers.items():
        sums[key] = [a + b for a, b in zip(sums[key] or [0.0] * len(values), values, strict=True)]
