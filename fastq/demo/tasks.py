"""The tasks of the demo, for its producer and its workers (`fastq worker fastq.demo.tasks`), by the environment."""
from __future__ import annotations

import functools
import os
import time
from pathlib import Path

from fastq import Backoff, FastQ, Unique, current_job
from fastq.demo import JOBS, LEDGER, NAMESPACE
from fastq.demo.ledger import Ledger
from fastq.demo.plan import RETRIES, Plan

app = FastQ(namespace=os.environ.get(NAMESPACE, "fastq-demo"))


@functools.cache
def ledger() -> Ledger:
    """The ledger of this demo."""
    return Ledger(Path(os.environ[LEDGER]), Plan(int(os.environ[JOBS])))


@app.task
async def plain(number: int) -> None:
    """Nothing but a note that it ran."""
    ledger().plain[number] += 1


@app.task(timeout=60, retries=0, unique=Unique(ttl=600))
async def unique(number: int) -> None:
    """While one of a number waits or runs, there is no second one."""
    ledger().unique[number] += 1


@app.task(queue="timed")
async def delayed(number: int, due_ms: float) -> None:
    """Notes how late it is, by the server's clock."""
    now_ms = time.time_ns() / 1e6 + (app.broker.clock.offset_ms or 0)
    ledger().late[number] = round((now_ms - due_ms) * 1000)
    ledger().delayed[number] += 1


@app.task(retries=Backoff(retries=RETRIES, delay=0.3, factor=1.5))
async def failing(number: int, failures: int) -> None:
    """Fails so many times."""
    ledger().failing[number] += 1
    if current_job().attempt <= failures:
        raise RuntimeError("this attempt is meant to fail")


@app.task(queue="express")
async def single(number: int, enqueued_ns: int) -> None:
    """Notes how long it waited."""
    ledger().waits[number] = max(1, (time.monotonic_ns() - enqueued_ns) // 1000)
    ledger().single[number] += 1
