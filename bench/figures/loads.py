"""The loads that bring about several figures at once, each run once a round."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from bench import producers
from bench.children import call
from bench.stage import Stage
from bench.tasks import LOCK, TEXT, noop, once
from fastq.task import Task

BULK = 400_000  # jobs
LONE = 200_000
LIFE = 500_000


class Rates(NamedTuple):
    """Jobs a second in and out."""

    enqueue: float
    drain: float


class Costs(NamedTuple):
    """Microseconds of CPU per job, in and out."""

    enqueue: float
    drain: float

    @property
    def whole(self) -> float:
        """From enqueue to the end."""
        return self.enqueue + self.drain


class Load(NamedTuple):
    """What a load told: how fast it was, what it cost producer and worker, and what it cost the server."""

    rates: Rates
    clients: Costs
    server: Costs


# --- fastq


def bulk(stage: Stage) -> Load:
    """Plain jobs: one producer's `enqueue_many`, then one worker."""
    return _bulk(stage, "bulk", noop, BULK)


def life(stage: Stage, task: Task[Any, Any]) -> Load:
    """The same with so many jobs of a task that their cost to the server can be told well."""
    return _bulk(stage, f"life of {task.name}", task, LIFE)


def lone(stage: Stage) -> Load:
    """Plain jobs in frames of one, as many producers that enqueue one by one put them there."""

    def run() -> Load:
        jobs = stage.jobs(LONE)
        stage.clear()
        call(producers.lone, stage.url, jobs=jobs)
        before = stage.cpu_seconds()
        rate, cpu = stage.drain(jobs)
        server = (stage.cpu_seconds() - before) / jobs * 1e6
        return Load(Rates(0, rate), Costs(0, cpu * 1e6), Costs(0, server))

    load: Load = stage.once("lone", run)
    return load


def _bulk(stage: Stage, name: str, task: Task[Any, Any], full: int) -> Load:
    def run() -> Load:
        jobs = stage.jobs(full)
        stage.clear()
        start = stage.cpu_seconds()
        enqueue_rate, producer = call(producers.bulk, stage.url, task=task.name, jobs=jobs)
        middle = stage.cpu_seconds()
        drain_rate, worker = stage.drain(jobs)
        end = stage.cpu_seconds()
        return Load(
            Rates(enqueue_rate, drain_rate),
            Costs(producer * 1e6, worker * 1e6),
            Costs((middle - start) / jobs * 1e6, (end - middle) / jobs * 1e6),
        )

    load: Load = stage.once(name, run)
    return load


# --- references


def plain_loop(stage: Stage, full: int, per_entry: int, entries_per_read: int) -> Rates:
    """plain_loop.py on the same server."""

    def run() -> Rates:
        printed = stage.reference("plain_loop.py", stage.jobs(full), per_entry, entries_per_read)
        enqueue_rate, drain_rate = re.findall(r"([\d,]+) jobs/s", printed)
        return Rates(_number(enqueue_rate), _number(drain_rate))

    rates: Rates = stage.once(f"plain loop {per_entry}", run)
    return rates


def plain_loop_bulk(stage: Stage) -> Rates:
    """The plain loop with 50 jobs an entry."""
    return plain_loop(stage, BULK, 50, 20)


def plain_loop_lone(stage: Stage) -> Rates:
    """The plain loop with one job an entry."""
    return plain_loop(stage, LONE, 1, 1000)


def server_cost(stage: Stage, kind: str, per_entry: int) -> Costs:
    """server_cost.py on the same server, with lock keys as long as ours. `kind`: "plain" or "unique"."""

    def run() -> str:
        lock_key = once.route.keys.unique(once.lock_key(LOCK, (0, TEXT), {}))
        return stage.reference("server_cost.py", len(lock_key))

    printed = stage.once("server cost", run)
    [line] = (line for line in printed.splitlines() if re.match(rf"{kind} +{per_entry} per entry", line))
    enqueue_us, read_us, settle_us = map(float, re.findall(r"(?:enqueue|read|settle) +([\d.]+) [+=]", line))
    return Costs(enqueue_us, read_us + settle_us)


def _number(text: str) -> float:
    return float(text.replace(",", ""))
