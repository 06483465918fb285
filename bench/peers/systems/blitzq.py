"""BlitzQ: asynchronous, in Python; its mode is $BLITZQ_MODE."""

from __future__ import annotations

import os

from blitzq import Queue
from blitzq.worker import Worker

from bench.peers.child import TEXT, URL, Producer, run_loop
from bench.peers.tally import count, delay

CALL = 1000  # jobs in one bulk call
CONCURRENCY = int(os.environ["BLITZQ_CONCURRENCY"])

queue = Queue("peers", redis_url=URL, mode=os.environ["BLITZQ_MODE"], store_results=False)


@queue.task(name="noop")
async def noop(number: int, text: str) -> None:
    """Do nothing but count."""
    count()


@queue.task(name="lag")
async def lag(number: int, text: str) -> None:
    """Tell how long it waited."""
    delay(number)


TASKS = {"noop": noop, "lag": lag}


async def _one(task: str, number: int) -> None:
    await TASKS[task].enqueue(number, TEXT)


async def _many(task: str, numbers: range) -> None:
    for first in range(0, len(numbers), CALL):
        await TASKS[task].enqueue_many((number, TEXT) for number in numbers[first : first + CALL])


producer = Producer(_one, _many)


def work(processes: int) -> None:
    """Run jobs until SIGTERM."""
    run_loop(Worker(queue, concurrency=CONCURRENCY, batch_size=CONCURRENCY).run())
