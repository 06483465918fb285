"""Places: of threads and processes there are fewer than slots, so jobs that have a slot may wait for one.

Those that would wait too long go back to the queue, where others are free. The slot of such a job stays taken until there is a
place again: otherwise it would fetch the next job, for which there is no place either.
"""

from __future__ import annotations

import time
from asyncio import Future
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from typing import Any, Generic, TypeVar

from fastq.worker.balance import LONGEST_WAIT
from fastq_ext.runner import Run

LOOK_EVERY = 0.01  # seconds, while a job that has its place may not start because its worker may look dead


class Waiter:
    """A job that wants a place. `future` is what its slot waits for."""

    __slots__ = ("future", "run")

    def __init__(self, run: Run, future: Future[Any]) -> None:
        self.run = run
        self.future = future


W = TypeVar("W", bound=Waiter)


class Places(Generic[W]):
    """Who waits for one of `count` places, in order."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.waiting: deque[W] = deque()
        self._without_job: deque[W] = deque()

    def withdraw(self, waiter: W) -> bool:
        """Wait no more; whether it did wait."""
        for line in (self.waiting, self._without_job):
            with suppress(ValueError):
                line.remove(waiter)
                return True
        return False

    @property
    def crowded(self) -> bool:
        """Whether slots without a job wait for a place."""
        return bool(self._without_job)

    def look(self, running: Collection[Run]) -> None:
        """Hand back the jobs that would wait too long, by how long those that have the places now hold them."""
        free = self.count - len(running)
        if free > 0:
            self._release(free - len(self.waiting))
        elif self.waiting:
            now = time.monotonic()
            holds = sum(max(run.line.mean, now - run.begun) for run in running) / len(running)
            may_wait = int(self.count * LONGEST_WAIT / holds) if holds > 0 else len(self.waiting)
            self._hand_back(len(self.waiting) - may_wait)

    def _release(self, most: int) -> None:
        while most > 0 and self._without_job:
            waiter = self._without_job.popleft()
            if not waiter.future.done():
                waiter.future.set_result(None)
                most -= 1

    def _hand_back(self, jobs: int) -> None:
        while jobs > 0 and self.waiting:
            waiter = self.waiting.pop()  # a thread takes what it runs by popleft(): one of both has it
            hand_back(waiter.run)
            self._without_job.append(waiter)
            jobs -= 1


def hand_back(run: Run) -> None:
    """The job is another worker's from here on, and what this run of it does counts no more."""
    if run.alive:
        run.holding.end(run.entry, run.place, ("back", 1, run.message.raw))
    run.ended = True
