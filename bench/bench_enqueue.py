"""Getting jobs in: one after another, many at a time, in bulk."""

from __future__ import annotations

from bench import producers
from bench.children import call
from bench.clock import Clock
from bench.stage import Stage
from bench.tasks import noop, once


def test_evalsha_of_redis_py(stage: Stage, clock: Clock) -> None:
    jobs = stage.jobs(20_000)
    clock.rate(lambda: call(producers.evalsha, stage.url, jobs=jobs), jobs)


def test_enqueue_one_by_one(stage: Stage, clock: Clock) -> None:
    jobs = stage.jobs(20_000)
    clock.rate(lambda: call(producers.one_by_one, stage.url, jobs=jobs), jobs)


def test_aenqueue_100_in_flight(stage: Stage, clock: Clock) -> None:
    jobs = stage.jobs(100_000)
    clock.rate(lambda: call(producers.in_flight, stage.url, jobs=jobs, callers=100), jobs)


def test_enqueue_many(stage: Stage, clock: Clock) -> None:
    jobs = stage.jobs(400_000)
    clock.rate(lambda: call(producers.bulk, stage.url, task=noop.name, jobs=jobs)[0], jobs)


def test_enqueue_many_unique(stage: Stage, clock: Clock) -> None:
    jobs = stage.jobs(200_000)

    def run() -> float:
        stage.clear()  # or all would be duplicates
        return float(call(producers.bulk, stage.url, task=once.name, jobs=jobs)[0])

    clock.rate(run, jobs)
