"""What `current_job()` reads in a process that runs jobs for a worker, where there is no fastq_ext.runner.Run."""

from __future__ import annotations

import time

from fastq.codec import Message
from fastq.worker.process_words import Order


class Run:
    """An attempt, as its process knows it. `reason` says why it should stop, `heeded` that it has seen it."""

    alive = True

    def __init__(self, order: Order) -> None:
        self.message = Message(order.message)
        self.attempt = self.message.attempt
        self.enqueued_ms = self.message.enqueued_at
        self.holding = _Holding(order)
        self.begun, self.timeout, self.fence = order.begun, order.timeout, order.fence
        self.renews = order.renews
        self.reason: str | None = None
        self.heeded = False


class _Holding:
    """The queue, the heart and the clock that the run belongs to."""

    def __init__(self, order: Order) -> None:
        self.keys = _Keys(order.queue)
        self.heart = _Heart(order.lease)
        self._clock_ahead = order.clock_ahead

    def now_ms(self) -> int:
        """The server's time."""
        return round(time.time() * 1000) + self._clock_ahead


class _Keys:
    def __init__(self, queue: str) -> None:
        self.queue = queue


class _Heart:
    def __init__(self, lease: float) -> None:
        self.lease = lease

    @property
    def last_beat(self) -> float:
        """Just now: a worker without a beat kills the processes of jobs that renew their locks."""
        return time.monotonic()
