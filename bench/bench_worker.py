"""Getting no-op jobs done: one worker process, from the first job to the last."""

from __future__ import annotations

from typing import Any

from bench import producers
from bench.children import call
from bench.clock import Clock
from bench.stage import Stage
from bench.tasks import noop, once


def test_drain(stage: Stage, clock: Clock) -> None:
    _drain(stage, clock, 400_000, producers.bulk, task=noop.name)


def test_drain_lone(stage: Stage, clock: Clock) -> None:
    _drain(stage, clock, 200_000, producers.lone)


def test_drain_unique(stage: Stage, clock: Clock) -> None:
    _drain(stage, clock, 200_000, producers.bulk, task=once.name)


def _drain(stage: Stage, clock: Clock, full: int, fill: Any, **arguments: Any) -> None:
    jobs = stage.jobs(full)

    def run() -> float:
        call(fill, stage.url, jobs=jobs, **arguments)
        return stage.drain(jobs)[0]

    clock.rate(run, jobs)
