"""What a job costs the server: CPU of its main thread over the whole life of jobs in bulk, memory while they wait."""

from __future__ import annotations

from bench import producers
from bench.children import call
from bench.figure import Figure
from bench.figures import loads
from bench.samples import CALL
from bench.stage import Stage
from bench.tasks import noop, once


def _plain(stage: Stage) -> float:
    return loads.life(stage, noop).server.whole


def _plain_reference(stage: Stage) -> float:
    return loads.server_cost(stage, "plain", 50).whole


def _plain_drain(stage: Stage) -> float:
    return loads.life(stage, noop).server.drain


def _unique(stage: Stage) -> float:
    return loads.life(stage, once).server.whole


def _unique_reference(stage: Stage) -> float:
    return loads.server_cost(stage, "unique", 50).whole


def _bytes_over_message(stage: Stage, task: str) -> float:
    """Bytes of the server's memory per waiting job, beyond its message."""
    route = noop.route if task == noop.name else once.route
    jobs = stage.jobs(100_000)
    stage.clear()
    call(producers.bulk, stage.url, task=noop.name, jobs=1000)  # what the queue itself and the scripts need
    before = stage.used_bytes()
    call(producers.bulk, stage.url, task=task, jobs=jobs)
    message = route.encode(CALL, {}, 1_700_000_000_000).message
    return (stage.used_bytes() - before) / jobs - len(message)


def _plain_bytes(stage: Stage) -> float:
    return _bytes_over_message(stage, noop.name)


def _unique_bytes(stage: Stage) -> float:
    return _bytes_over_message(stage, once.name)


FIGURES = [
    Figure("server, plain job", "us/job", _plain, _plain_reference, less_is_better=True, bounds={2: 1.3}),
    Figure("server, drained job", "us/job", _plain_drain, less_is_better=True, bounds={6: 1.5}, steady=False),
    Figure("server, unique job", "us/job", _unique, _unique_reference, less_is_better=True, bounds={4: 1.15}),
    Figure("bytes, plain job", "B/job", _plain_bytes, less_is_better=True, bounds={6: 40}),
    Figure("bytes, unique job", "B/job", _unique_bytes, less_is_better=True, bounds={6: 260}),
]
