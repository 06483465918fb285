"""The loads that bring about several figures at once, each run once a round."""

from __future__ import annotations

import re
from typing import NamedTuple

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


class ServerCosts(NamedTuple):
    """Microseconds of the server's CPU per job."""

    enqueue: float
    drain: float

    @property
    def whole(self) -> float:
        """From enqueue to the end."""
        return self.enqueue + self.drain


# --- fastq


def bulk(stage: Stage) -> Rates:
    """One producer's `enqueue_many`, then one worker."""

    def run() -> Rates:
        stage.clear()
        rate = call(producers.bulk, stage.url, task=noop.name, jobs=stage.jobs(BULK))
        return Rates(rate, stage.drain())

    rates: Rates = stage.once("bulk", run)
    return rates


def lone(stage: Stage) -> float:
    """Jobs a second that one worker drains from frames of one."""

    def run() -> float:
        stage.clear()
        call(producers.lone, stage.url, jobs=stage.jobs(LONE))
        return stage.drain()

    return float(stage.once("lone", run))


def life(stage: Stage, task: Task[..., object]) -> tuple[Rates, ServerCosts]:
    """The whole life of many jobs of a task in bulk, and what it costs the server."""

    def run() -> tuple[Rates, ServerCosts]:
        jobs = stage.jobs(LIFE)
        stage.clear()
        start = stage.cpu_seconds()
        enqueue_rate = call(producers.bulk, stage.url, task=task.name, jobs=jobs)
        middle = stage.cpu_seconds()
        drain_rate = stage.drain()
        end = stage.cpu_seconds()
        return Rates(enqueue_rate, drain_rate), ServerCosts((middle - start) / jobs * 1e6, (end - middle) / jobs * 1e6)

    found: tuple[Rates, ServerCosts] = stage.once(f"life of {task.name}", run)
    return found


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


def server_cost(stage: Stage, kind: str, per_entry: int) -> ServerCosts:
    """server_cost.py on the same server, with lock keys as long as ours. `kind`: "plain" or "unique"."""

    def run() -> str:
        lock_key = once.route.keys.unique(once.lock_key(LOCK, (0, TEXT), {}))
        return stage.reference("server_cost.py", len(lock_key))

    printed = stage.once("server cost", run)
    [line] = (line for line in printed.splitlines() if re.match(rf"{kind} +{per_entry} per entry", line))
    enqueue_us, read_us, settle_us = map(float, re.findall(r"(?:enqueue|read|settle) +([\d.]+) [+=]", line))
    return ServerCosts(enqueue_us, read_us + settle_us)


def _number(text: str) -> float:
    return float(text.replace(",", ""))
