"""Celery: synchronous, in Python, on kombu."""

from __future__ import annotations

from celery import Celery, group

from bench.peers.child import TEXT, URL, Producer, run_program
from bench.peers.tally import count, delay

CALL = 500  # jobs in one group

app = Celery("peers", broker=URL)
app.conf.update(
    task_ignore_result=True,
    task_default_queue="peers",
    worker_prefetch_multiplier=128,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="noop")
def noop(number: int, text: str) -> None:
    """Do nothing but count."""
    count()


@app.task(name="lag")
def lag(number: int, text: str) -> None:
    """Tell how long it waited."""
    delay(number)


TASKS = {"noop": noop, "lag": lag}


def _one(task: str, number: int) -> None:
    TASKS[task].delay(number, TEXT)


def _many(task: str, numbers: range) -> None:
    signature = TASKS[task].s
    for first in range(0, len(numbers), CALL):
        group([signature(number, TEXT) for number in numbers[first : first + CALL]]).apply_async()


producer = Producer(_one, _many)


def work(processes: int) -> None:
    """Run jobs until SIGTERM."""
    silent = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING"]
    run_program("celery", "--app", f"{__name__}:app", "worker", "--pool", "solo", "--hostname", "peers-%i@%h-%d", *silent)
