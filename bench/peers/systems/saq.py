"""SAQ: asynchronous, in Python."""

from __future__ import annotations

from typing import Any

from saq import Queue, Worker

from bench.peers.child import TEXT, URL, Producer, run_loop
from bench.peers.tally import count, delay

NO_RESULT = -1

queue = Queue.from_url(URL, name="peers")


async def noop(context: dict[str, Any], *, number: int, text: str) -> None:
    """Do nothing but count."""
    count()


async def lag(context: dict[str, Any], *, number: int, text: str) -> None:
    """Tell how long it waited."""
    delay(number)


async def _open() -> None:
    await queue.connect()


async def _close() -> None:
    await queue.disconnect()


async def _one(task: str, number: int) -> None:
    if task == "once":
        await queue.enqueue("once", number=number, text=TEXT, ttl=NO_RESULT, key=f"once:{number}")
    else:
        await queue.enqueue(task, number=number, text=TEXT, ttl=NO_RESULT)


producer = Producer(_one, open=_open, close=_close)


def work(processes: int) -> None:
    """Run jobs until SIGTERM."""

    async def run() -> None:
        await queue.connect()
        await Worker(queue, [("noop", noop), ("once", noop), ("lag", lag)], concurrency=32).start()

    run_loop(run())
