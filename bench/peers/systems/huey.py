"""huey: synchronous, in Python."""

from __future__ import annotations

from huey import RedisHuey

from bench.peers.child import TEXT, URL, Producer
from bench.peers.tally import count, delay

huey = RedisHuey("peers", url=URL, results=False, blocking=True)


@huey.task(name="noop")
def noop(number: int, text: str) -> None:
    """Do nothing but count."""
    count()


@huey.task(name="lag")
def lag(number: int, text: str) -> None:
    """Tell how long it waited."""
    delay(number)


TASKS = {"noop": noop, "lag": lag}


def _one(task: str, number: int) -> None:
    TASKS[task](number, TEXT)


producer = Producer(_one)


def work(processes: int) -> None:
    """Run jobs until SIGTERM."""
    huey.create_consumer(workers=1, worker_type="thread", periodic=False, check_worker_health=False).run()
