"""What a job costs producer and worker: microseconds of CPU, beside a hash in C, the pace of the machine.

A busy machine makes rates worse than they are; these suffer less.
"""

from __future__ import annotations

from bench.figure import Figure
from bench.figures import loads
from bench.figures.hashing import blake2b_60
from bench.stage import Stage
from bench.tasks import noop, once


def _pace(stage: Stage) -> float:
    return blake2b_60(stage) / 1000


def _plain_producer(stage: Stage) -> float:
    return loads.life(stage, noop).clients.enqueue


def _unique_producer(stage: Stage) -> float:
    return loads.life(stage, once).clients.enqueue


def _plain_worker(stage: Stage) -> float:
    return loads.life(stage, noop).clients.drain


def _lone_worker(stage: Stage) -> float:
    return loads.lone(stage).clients.drain


def _unique_worker(stage: Stage) -> float:
    return loads.life(stage, once).clients.drain


FIGURES = [
    Figure(name, "us/job", measure, _pace, less_is_better=True)
    for name, measure in (
        ("producer, plain job", _plain_producer),
        ("producer, unique job", _unique_producer),
        ("worker, plain job", _plain_worker),
        ("worker, lone job", _lone_worker),
        ("worker, unique job", _unique_worker),
    )
]
