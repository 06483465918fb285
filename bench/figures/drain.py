"""How fast one worker process gets jobs done, and two."""

from __future__ import annotations

import time

from bench import producers
from bench.children import call
from bench.figure import Figure
from bench.figures import loads
from bench.meter import Meter
from bench.stage import DRAIN_TIMEOUT, Stage
from bench.tasks import noop, once
from fastq import FastQ


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


def _together(stage: Stage, workers: int) -> float:
    """Jobs a second that so many worker processes do together, from when all are let loose."""
    stage.clear()
    jobs = stage.jobs(2 * loads.BULK)
    queue = FastQ(stage.url, namespace=noop.route.keys.namespace).queue()
    queue.pause()
    call(producers.bulk, stage.url, task=noop.name, jobs=jobs)
    with Meter() as meter, stage.crew(meter, workers) as alive:
        queue.resume()
        meter.wait(lambda: not stage.waiting_entries(), alive=alive, timeout=DRAIN_TIMEOUT)
        return jobs / (time.monotonic() - meter.first)


def _two(stage: Stage) -> float:
    return _together(stage, 2)


def _one(stage: Stage) -> float:
    return _together(stage, 1)


FIGURES = [
    Figure("drain", "jobs/s", _bulk, _plain_loop_bulk, bounds={2: 1.2, 6: 2.0}),
    Figure("drain lone", "jobs/s", _lone, _plain_loop_lone, bounds={2: 1.2}),
    Figure("drain lone, ceiling", "jobs/s", _lone, _lone_ceiling, bounds={6: 0.6}),
    Figure("drain, two workers", "jobs/s", _two, _one, bounds={6: 0}, steady=False),  # reported, whatever it is
    Figure("drain unique", "jobs/s", _unique, _plain_loop_bulk),
]
