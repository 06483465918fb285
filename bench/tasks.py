"""The app that is measured, its tasks, and the worker that runs them. Its server is $FASTQ_URL."""

from __future__ import annotations

import time

from bench.meter import STRIDE, Meter
from fastq import FastQ, Unique

TEXT = "x" * 50  # with a number, the payload of all measured jobs
LOCK = Unique(ttl=86_400)
LOOKED_AT = 128

app = FastQ(namespace="bench")
_meter: Meter
_done = 0


@app.task(name="bench.first")
async def first() -> None:
    """Note when the first job runs: it is ahead of those that are measured."""
    _meter.mark(1)


async def _nothing(number: int, text: str) -> None:
    """Do nothing, as the jobs of the references do."""


noop = app.task(name="bench.noop")(_nothing)
once = app.task(name="bench.once", unique=LOCK)(_nothing)


@app.task(name="bench.counted")
async def counted(number: int, text: str) -> None:
    """Do nothing but count: of STRIDE jobs the first is marked."""
    global _done
    _done += 1
    if _done % STRIDE == 1:
        _meter.mark(_done)


@app.task(name="bench.lag")
async def lag(sent: float) -> None:
    """Note how long it took from `sent`, by time.monotonic(), to the start."""
    _meter.add_delay(time.monotonic() - sent)


@app.task(name="bench.lag_of_some")
async def lag_of_some(number: int, sent: float) -> None:
    """The same, for one of LOOKED_AT jobs: there are very many."""
    if number % LOOKED_AT == 0:
        _meter.add_delay(time.monotonic() - sent)


def work(meter: str, concurrency: int) -> None:
    """Run jobs until SIGTERM, in a process of its own; `meter` is the path of the meter."""
    global _meter
    _meter = Meter(meter)
    app.worker(concurrency=concurrency).run()
    _meter.end()
