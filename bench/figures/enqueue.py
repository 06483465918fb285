"""How fast one producer gets jobs in."""

from __future__ import annotations

from bench import producers
from bench.children import call
from bench.figure import Figure
from bench.figures import loads
from bench.stage import Stage
from bench.tasks import once


def _evalsha(stage: Stage) -> float:
    def run() -> float:
        stage.clear()
        return float(call(producers.evalsha, stage.url, jobs=stage.jobs(20_000)))

    return float(stage.once("evalsha", run))


def _one_by_one(stage: Stage) -> float:
    stage.clear()
    return float(call(producers.one_by_one, stage.url, jobs=stage.jobs(20_000)))


def _in_flight(stage: Stage) -> float:
    stage.clear()
    return float(call(producers.in_flight, stage.url, jobs=stage.jobs(100_000), callers=100))


def _bulk(stage: Stage) -> float:
    return loads.bulk(stage).rates.enqueue


def _plain_loop(stage: Stage) -> float:
    return loads.plain_loop_bulk(stage).enqueue


def _unique(stage: Stage) -> float:
    return loads.life(stage, once).rates.enqueue


def _unique_ceiling(stage: Stage) -> float:
    return 1e6 / loads.server_cost(stage, "unique", 50).enqueue


FIGURES = [
    Figure("enqueue one by one", "jobs/s", _one_by_one, _evalsha, bounds={6: 1.6}),
    Figure("enqueue 100 in flight", "jobs/s", _in_flight, _evalsha),
    Figure("enqueue in bulk", "jobs/s", _bulk, _plain_loop, bounds={2: 1.2}),
    Figure("enqueue unique", "jobs/s", _unique, _unique_ceiling, bounds={4: 0.6}),
]
