"""The memory of a producer that streams millions of jobs from a generator, while a worker takes them off the server."""

from __future__ import annotations

from bench import producers
from bench.children import call
from bench.figure import Figure
from bench.meter import Meter
from bench.stage import Stage

JOBS = 5_000_000


def _growth(stage: Stage, *, handles: bool) -> float:
    stage.clear()
    with Meter() as meter, stage.worker(meter) as worker:
        grown = call(producers.memory, stage.url, jobs=stage.jobs(JOBS), handles=handles)
        meter.wait(lambda: not stage.waiting_entries(), alive=worker.check, timeout=120)
    return float(grown)


def _with_handles(stage: Stage) -> float:
    return _growth(stage, handles=True)


def _without_handles(stage: Stage) -> float:
    return _growth(stage, handles=False)


NONE = 0.5  # bytes a job: 2.5 MB in 5,000,000 jobs are the allocator's, not the jobs'

FIGURES = [
    Figure(name, "B/job", measure, less_is_better=True, bounds={2: bound}, once=True, steady=False)
    for name, measure, bound in (
        ("memory, handles", _with_handles, 20),
        ("memory, no handles", _without_handles, NONE),
    )
]
