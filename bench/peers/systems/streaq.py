"""streaQ: asynchronous, in Python, on Redis functions."""

from __future__ import annotations

from contextlib import AsyncExitStack

from streaq import Worker

from bench.peers.child import TEXT, URL, Producer, run_program
from bench.peers.tally import count, delay

CALL = 1000  # jobs in one bulk call
SILENT = {"ttl": 0, "silent": True, "timeout": None}

worker = Worker(redis_url=URL, queue_name="peers", concurrency=16, prefetch=64, anyio_kwargs={"use_uvloop": True})
_opened = AsyncExitStack()


@worker.task(name="noop", **SILENT)
async def noop(number: int, text: str) -> None:
    """Do nothing but count."""
    count()


@worker.task(name="lag", **SILENT)
async def lag(number: int, text: str) -> None:
    """Tell how long it waited."""
    delay(number)


TASKS = {"noop": noop, "lag": lag}


async def _open() -> None:
    await _opened.enter_async_context(worker)


async def _close() -> None:
    await _opened.aclose()


async def _one(task: str, number: int) -> None:
    await TASKS[task].enqueue(number, TEXT)


async def _many(task: str, numbers: range) -> None:
    enqueue = TASKS[task].enqueue
    for first in range(0, len(numbers), CALL):
        await worker.enqueue_many([enqueue(number, TEXT) for number in numbers[first : first + CALL]])


producer = Producer(_one, _many, open=_open, close=_close)


def work(processes: int) -> None:
    """Run jobs until SIGTERM."""
    run_program("streaq", "run", f"{__name__}:worker")
