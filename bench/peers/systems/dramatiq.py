"""Dramatiq: synchronous, in Python, with threads; it reads how far to fetch ahead from $dramatiq_queue_prefetch."""

from __future__ import annotations

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.peers.child import TEXT, URL, Producer, run_program
from bench.peers.tally import count_in_thread, delay

QUEUE = "peers"

dramatiq.set_broker(RedisBroker(url=URL))


@dramatiq.actor(actor_name="noop", queue_name=QUEUE)
def noop(number: int, text: str) -> None:
    """Do nothing but count."""
    count_in_thread()


@dramatiq.actor(actor_name="lag", queue_name=QUEUE)
def lag(number: int, text: str) -> None:
    """Tell how long it waited."""
    delay(number)


TASKS = {"noop": noop, "lag": lag}


def _one(task: str, number: int) -> None:
    TASKS[task].send(number, TEXT)


producer = Producer(_one)


def work(processes: int) -> None:
    """Run jobs until SIGTERM."""
    run_program("dramatiq", __name__, "--processes", str(processes), "--threads", "8", "--queues", QUEUE)
