"""One queue as a whole: what it holds, who serves it, and how to pause, resume and purge it."""
from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from fastq.broker import inspection, requests
from fastq.broker.broker import Broker
from fastq.broker.requests import Request
from fastq.codec import PayloadDecoder
from fastq.dead import DeadJobs
from fastq.keys import QueueKeys

PURGED_AT_ONCE = 500  # jobs


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """What a queue holds now, in jobs; `workers` live in it.

    `waiting` may be wrong by what was fetched within the last second. `running` are those that a worker has in hand,
    begun or about to begin; beyond 50 stream entries it is estimated. `retrying` have failed and wait for their next
    attempt; `scheduled` wait for their first. `totals` count what has happened since the queue was made: "enqueued",
    "succeeded", "failed" (attempts), "dead", "dropped", "cancelled", "expired", "refused" ... and the same of each
    task, as in "succeeded:send_email".
    """

    paused: bool
    waiting: int
    running: int
    scheduled: int
    retrying: int
    dead: int
    workers: int
    totals: dict[str, int]


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker of a queue: its name, and the seconds since its last sign of life.

    `fenced`: it gave none for too long and was taken for dead; what it had in hand is given to others.
    """

    name: str
    silent_for: float
    fenced: bool


class Queue:
    """A queue by its name: `app.queue("mail")`. Making one asks nothing of Redis. `dead` are its dead jobs.

    >>> app.queue("mail").pause()  # doctest: +SKIP
    True
    >>> app.queue("mail").counts().waiting  # doctest: +SKIP
    117
    """

    def __init__(self, broker: Broker, keys: QueueKeys, decoder_of: Callable[[str], PayloadDecoder | None]) -> None:
        self._broker = broker
        self._keys = keys
        self.name = keys.queue
        self.dead = DeadJobs(broker, keys, decoder_of)

    def pause(self) -> bool:
        """Start no job of it from 1 second after this returns; those that run go on. Whether it was not paused already."""
        return self._broker.call(requests.pause(self._keys))

    async def apause(self) -> bool:
        """`pause()` for async code."""
        return await self._broker.acall(requests.pause(self._keys))

    def resume(self) -> bool:
        """Let its jobs start again. Whether it was paused."""
        return self._broker.call(requests.resume(self._keys))

    async def aresume(self) -> bool:
        """`resume()` for async code."""
        return await self._broker.acall(requests.resume(self._keys))

    def purge(self) -> int:
        """Delete the jobs that wait, are scheduled or retrying, which frees their locks and ids; how many there were.

        What a worker has in hand is left alone, and so are dead jobs. In many small calls, so that Redis serves others
        meanwhile; of what is enqueued meanwhile some may be deleted too.
        """
        return self._broker.run(self._purge())

    async def apurge(self) -> int:
        """`purge()` for async code."""
        return await self._broker.arun(self._purge())

    def counts(self) -> QueueCounts:
        """What it holds now."""
        return shown(self._broker.call(inspection.counts(self._keys)))

    async def acounts(self) -> QueueCounts:
        """`counts()` for async code."""
        return shown(await self._broker.acall(inspection.counts(self._keys)))

    def workers(self) -> list[WorkerInfo]:
        """Who serves it."""
        return _named(self._broker.call(inspection.beats(self._keys)))

    async def aworkers(self) -> list[WorkerInfo]:
        """`workers()` for async code."""
        return _named(await self._broker.acall(inspection.beats(self._keys)))

    def _purge(self) -> Generator[Request[Any], Any, int]:
        # Bounded by what is there now: with a producer that is faster it would never end otherwise.
        left = yield inspection.most_jobs(self._keys)
        total = 0
        more = True
        while more and left >= 0:
            deleted, more = yield requests.purge(self._keys, limit=PURGED_AT_ONCE)
            total += deleted
            left -= PURGED_AT_ONCE
        return total

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"


def shown(found: inspection.Counts) -> QueueCounts:
    """What `Queue.counts()` tells, from what the server counted."""
    totals = {name: n for name, n in found.counters.items() if name not in ("waiting", "retrying", "dead_bytes")}
    retrying = min(max(0, found.counters.get("retrying", 0)), found.scheduled)
    return QueueCounts(
        paused=found.gate == "paused",
        waiting=max(0, found.counters.get("waiting", 0)),
        running=found.in_hand,
        scheduled=found.scheduled - retrying,
        retrying=retrying,
        dead=found.dead,
        workers=found.workers,
        totals=totals,
    )


def _named(beats: list[tuple[bytes, float]]) -> list[WorkerInfo]:
    return [WorkerInfo(name.decode("utf-8", "replace"), max(0.0, age), age < 0) for name, age in beats]
