"""How fast one worker process gets jobs done."""

from __future__ import annotations

from bench.figure import Figure
from bench.figures import loads
from bench.stage import Stage
from bench.tasks import once


def _bulk(stage: Stage) -> float:
    return loads.bulk(stage).rates.drain


def _plain_loop_bulk(stage: Stage) -> float:
    return loads.plain_loop_bulk(stage).drain


def _lone(stage: Stage) -> float:
    return loads.lone(stage).rates.drain


def _plain_loop_lone(stage: Stage) -> float:
    return loads.plain_loop_lone(stage).drain


def _lone_ceiling(stage: Stage) -> float:
    return 1e6 / loads.server_cost(stage, "plain", 1).drain


def _unique(stage: Stage) -> float:
    return loads.life(stage, once).rates.drain


FIGURES = [
    Figure("drain", "jobs/s", _bulk, _plain_loop_bulk, bounds={2: 1.2, 6: 2.0}),
    Figure("drain lone", "jobs/s", _lone, _plain_loop_lone, bounds={2: 1.2}),
    Figure("drain lone, ceiling", "jobs/s", _lone, _lone_ceiling, bounds={6: 0.6}),
    Figure("drain unique", "jobs/s", _unique, _plain_loop_bulk),
]
