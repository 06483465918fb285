"""fastq itself, by what its users have: typed tasks, both ways to enqueue, its worker."""

from __future__ import annotations

from bench.peers.child import TEXT, URL, Producer
from bench.peers.tally import count, delay
from fastq import FastQ, Unique

app = FastQ(URL, namespace="peers")


async def _count(number: int, text: str) -> None:
    count()


@app.task(name="lag")
async def lag(number: int, text: str) -> None:
    """Tell how long it waited."""
    delay(number)


TASKS = {
    "noop": app.task(name="noop")(_count),
    "once": app.task(name="once", unique=Unique(ttl=86_400))(_count),
    "lag": lag,
}


def _one(task: str, number: int) -> None:
    TASKS[task].enqueue(number, TEXT)


async def _in_flight(task: str, number: int) -> None:
    await TASKS[task].aenqueue(number, TEXT)


def _many(task: str, numbers: range) -> None:
    result = TASKS[task].enqueue_many((number, TEXT) for number in numbers)
    assert result.enqueued == len(numbers), result


producer = Producer(_one, _many, in_flight=_in_flight)


def work(processes: int) -> None:
    """Run jobs until SIGTERM."""
    app.worker(concurrency=100).run()
