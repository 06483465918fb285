"""A run of the demo: what is enqueued and when, and how it is known that all is done."""
from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import UTC, datetime
from operator import eq
from typing import TypeVar

from fastq.broker import inspection
from fastq.demo import tasks
from fastq.demo.ledger import ran
from fastq.demo.plan import MOST_SINGLES, SINGLES_EVERY
from fastq.demo.stage import Stage
from fastq.fleet.fleet import Fleet
from fastq.keys import queue_keys
from fastq.task import PreparedCall

T = TypeVar("T")

QUEUES = ("express", "timed", "default")  # served in this order
FIRST_DUE, LAST_DUE = 1.0, 4.0  # seconds from the start of the workers until delayed jobs are due
STALLED_AFTER = 20.0  # seconds without any progress: something is wrong, which the proof will show
SETTLED_WITHIN = 5.0
LOOK_EVERY = 0.05


class Run:
    """One run. Make it within its stage, then `await play()`; what there is to see meanwhile is in the attributes."""

    def __init__(self, stage: Stage, processes: int) -> None:
        self.stage, self.plan, self.processes = stage, stage.plan, processes
        self.app = tasks.app
        self.ledger = tasks.ledger()
        self.begun = time.monotonic()
        self.calls: Counter[str] = Counter()  # made so far, by kind
        self.enqueued: Counter[str] = Counter()  # as the producer was told in the end
        self.refused = 0
        self.bulk_rate = 0.0  # plain jobs a second, enqueued
        self.singles = 0
        self.contents: list[inspection.Contents] = []  # of each queue, at the end
        self._planned = self.plan.runs
        self._attempts = [self.plan.attempts(number) for number in range(self.plan.failing)]
        self._log = (stage.folder / "workers.log").open("wb")
        command = [
            *(sys.executable, "-P", "-m", "fastq.cli", "worker", "fastq.demo.tasks:app"),
            *("--queues", ",".join(QUEUES), "--grace", "5", "--log-level", "error"),
        ]
        self.fleet = Fleet(
            command,
            processes=processes,
            grace=5,
            env={"FASTQ_URL": stage.workers_url},
            log=self._log.fileno(),
        )

    async def play(self) -> None:
        """Enqueue, wait until all is done or nothing moves any more, and end the workers. Raises BrokerError."""
        with self._log:
            try:
                await self._enqueue_unique()
                async with self._workers():
                    await self._enqueue_failing()
                    await self._enqueue_delayed()
                    await self._enqueue_plain()
                    await self._enqueue_singles_until_done()
                    await self._look_into_queues()
            finally:
                await self.app.aclose()

    @property
    def retries(self) -> int:
        """Attempts of failing jobs so far, less the first of each."""
        return sum(self.ledger.failing) - ran(self.ledger.failing)

    @property
    def ended(self) -> int:
        """Failing jobs that have succeeded in the end, or are dead."""
        return sum(map(eq, self.ledger.failing, self._attempts))

    @property
    def dead(self) -> int:
        """Failing jobs that are dead."""
        return sum(map(eq, self.ledger.failing[: self.plan.dead], self._attempts))

    @property
    def late(self) -> list[int]:
        """By how much the delayed jobs were late that have run, in µs."""
        return [late for late, runs in zip(self.ledger.late, self.ledger.delayed, strict=True) if runs]

    @property
    def waits(self) -> list[int]:
        """How long the single jobs waited that have run, in µs."""
        waits = self.ledger.waits[: self.singles]
        return [wait for wait in waits if wait]

    @property
    def planned(self) -> int:
        """How many runs of any job there will have been in the end, as far as is known."""
        return self._planned + self.singles

    @property
    def runs(self) -> int:
        """How many runs there were so far."""
        ledger = self.ledger
        once = sum(ran(runs) for runs in (ledger.plain, ledger.unique, ledger.delayed, ledger.single))
        return once + sum(ledger.failing)

    @property
    def done(self) -> bool:
        """Whether every job has run as often as it should."""
        return self.runs >= self.planned

    def last_words(self) -> list[str]:
        """The end of what the workers wrote to their log."""
        with contextlib.suppress(OSError):
            return (self.stage.folder / "workers.log").read_text(errors="replace").splitlines()[-10:]
        return []

    @contextlib.asynccontextmanager
    async def _workers(self) -> AsyncIterator[None]:
        fleet = asyncio.create_task(self.fleet.arun())
        try:
            yield
        finally:
            self.fleet.stop()
            await fleet

    async def _enqueue_unique(self) -> None:
        """Two calls of each, in any order, before a worker is there to end the first one."""
        calls = [(number,) for number in range(self.plan.unique)] * 2
        random.shuffle(calls)
        result = await tasks.unique.aenqueue_many(self._counted("unique", calls), handles=False)
        self.enqueued["unique"] = result.enqueued
        self.refused = result.duplicate_count

    async def _enqueue_failing(self) -> None:
        calls = ((number, self.plan.failures(number)) for number in range(self.plan.failing))
        result = await tasks.failing.aenqueue_many(self._counted("failing", calls), handles=False)
        self.enqueued["failing"] = result.enqueued

    async def _enqueue_delayed(self) -> None:
        first_ms = await self.app.broker.anow_ms() + FIRST_DUE * 1000
        step_ms = (LAST_DUE - FIRST_DUE) * 1000 / self.plan.delayed

        def calls() -> Iterator[PreparedCall]:
            for number in range(self.plan.delayed):
                due_ms = first_ms + number * step_ms
                at = datetime.fromtimestamp(due_ms / 1000, UTC)
                yield tasks.delayed.using(at=at).prepare(number, due_ms)

        result = await self.app.aenqueue_many(self._counted("delayed", calls()), handles=False)
        self.enqueued["delayed"] = result.enqueued

    async def _enqueue_plain(self) -> None:
        begun = time.monotonic()
        calls = ((number,) for number in range(self.plan.plain))
        result = await tasks.plain.aenqueue_many(self._counted("plain", calls), handles=False)
        self.enqueued["plain"] = result.enqueued
        self.bulk_rate = result.enqueued / (time.monotonic() - begun)

    def _counted(self, kind: str, calls: Iterable[T]) -> Iterator[T]:
        for call in calls:
            self.calls[kind] += 1
            yield call

    async def _enqueue_singles_until_done(self) -> None:
        """One job now and then, with a queue of its own that is served first; until the others are done."""
        seen, moved = self.runs, time.monotonic()
        while not self.done and time.monotonic() - moved < STALLED_AFTER:
            if self.singles < MOST_SINGLES and seen:  # not while the workers start, which would be what is measured
                number, self.singles = self.singles, self.singles + 1
                await tasks.single.aenqueue(number, time.monotonic_ns())
                self.enqueued["single"] += 1
            await asyncio.sleep(SINGLES_EVERY)
            if self.runs != seen:
                seen, moved = self.runs, time.monotonic()

    async def _look_into_queues(self) -> None:
        """What the queues hold, once the last jobs are settled."""
        until = time.monotonic() + SETTLED_WITHIN
        while True:
            requests = [inspection.contents(queue_keys(self.stage.namespace, queue)) for queue in QUEUES]
            self.contents = [await self.app.broker.acall(request) for request in requests]
            if not any(queue.entries or queue.pending for queue in self.contents) or time.monotonic() > until:
                return
            await asyncio.sleep(LOOK_EVERY)
