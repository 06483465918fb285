"""The app that is measured, its tasks, and the worker that runs them. Its server is $FASTQ_URL."""

from __future__ import annotations

import time

from bench.meter import STRIDE, Meter
from fastq import FastQ, Unique

TEXT = "x" * 50  # with a number, the payload of all measured jobs
LOCK = Unique(ttl=86_400)

app = FastQ(namespace="bench")
_meter: Meter
_done = 0


async def _count(number: int, text: str) -> None:
    """Do nothing but count: of STRIDE jobs the first is marked."""
    global _done
    _done += 1
    if _done % STRIDE == 1:
        _meter.mark(_done)


noop = app.task(name="bench.noop")(_count)
once = app.task(name="bench.once", unique=LOCK)(_count)


@app.task(name="bench.lag")
async def lag(sent: float) -> None:
    """Note how long it took from `sent`, by time.monotonic(), to the start."""
    _meter.add_delay(time.monotonic() - sent)


def work(meter: str, concurrency: int) -> None:
    """Run jobs until SIGTERM, in a process of its own; `meter` is the path of the meter."""
    global _meter
    _meter = Meter(meter)
    app.worker(concurrency=concurrency).run()
    _meter.end()
