"""RQ: synchronous, in Python."""

from __future__ import annotations

from redis import Redis
from rq import Queue, SimpleWorker

from bench.peers.child import TEXT, URL, Producer
from bench.peers.tally import count, delay

CALL = 1000  # jobs in one bulk call

queue = Queue("peers", connection=Redis.from_url(URL))


def noop(number: int, text: str) -> None:
    """Do nothing but count."""
    count()


def lag(number: int, text: str) -> None:
    """Tell how long it waited."""
    delay(number)


TASKS = {"noop": noop, "once": noop, "lag": lag}


def _one(task: str, number: int) -> None:
    lock = {"job_id": f"once-{number}", "unique": True} if task == "once" else {}
    queue.enqueue(TASKS[task], number, TEXT, result_ttl=0, **lock)


def _many(task: str, numbers: range) -> None:
    for first in range(0, len(numbers), CALL):
        part = numbers[first : first + CALL]
        queue.enqueue_many([Queue.prepare_data(TASKS[task], (number, TEXT), result_ttl=0) for number in part])


producer = Producer(_one, _many)


def work(processes: int) -> None:
    """Run jobs until SIGTERM."""
    SimpleWorker([queue], connection=queue.connection).work(logging_level="WARNING")
