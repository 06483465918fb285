"""ArdiQ: asynchronous, on a Rust core."""

from __future__ import annotations

from ardiq import Ardiq
from ardiq.cli import serve

from bench.peers.child import TEXT, URL, Producer, run_loop
from bench.peers.tally import count, delay

CALL = 1000  # jobs in one bulk call

app = Ardiq(redis_url=URL.removesuffix("/0"), queue_name="peers", concurrency=100, prefetch=200, result_ttl_ms=0)


@app.task(name="noop")
async def noop(number: int, text: str) -> None:
    """Do nothing but count."""
    count()


@app.task(name="once", unique=True)
async def once(number: int, text: str) -> None:
    """The same, unique."""
    count()


@app.task(name="lag")
async def lag(number: int, text: str) -> None:
    """Tell how long it waited."""
    delay(number)


TASKS = {"noop": noop, "once": once, "lag": lag}


async def _one(task: str, number: int) -> None:
    await TASKS[task].enqueue(number, TEXT)


async def _many(task: str, numbers: range) -> None:
    prepare = TASKS[task].prepare
    for first in range(0, len(numbers), CALL):
        await app.enqueue_many([prepare(number, TEXT) for number in numbers[first : first + CALL]])


producer = Producer(_one, _many)


def work(processes: int) -> None:
    """Run jobs until SIGTERM."""
    run_loop(serve(app, burst=False, quiet=True))
