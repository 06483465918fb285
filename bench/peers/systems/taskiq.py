"""taskiq with its Redis streams: asynchronous, in Python."""

from __future__ import annotations

from taskiq.serializers import ORJSONSerializer
from taskiq_redis import RedisStreamBroker

from bench.peers.child import TEXT, URL, Producer, run_program
from bench.peers.tally import count, delay

broker = RedisStreamBroker(URL, queue_name="peers", consumer_id="0", xread_count=100).with_serializer(ORJSONSerializer())


@broker.task(task_name="noop")
async def noop(number: int, text: str) -> None:
    """Do nothing but count."""
    count()


@broker.task(task_name="lag")
async def lag(number: int, text: str) -> None:
    """Tell how long it waited."""
    delay(number)


TASKS = {"noop": noop, "lag": lag}


async def _open() -> None:
    await broker.startup()


async def _close() -> None:
    await broker.shutdown()


async def _one(task: str, number: int) -> None:
    await TASKS[task].kiq(number, TEXT)


producer = Producer(_one, open=_open, close=_close)


def work(processes: int) -> None:
    """Run jobs until SIGTERM."""
    options = ["--workers", str(processes), "--max-async-tasks", "100", "--max-prefetch", "100", "--no-parse"]
    run_program("taskiq", "worker", f"{__name__}:broker", "--log-level", "WARNING", *options)
