"""The settler: reports ends to the queue, one call on its way at a time; the next batch gathers meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from fastq.broker import requests
from fastq.broker.clients import AsyncClient
from fastq.broker.talk import ServerError
from fastq.errors import BrokerError
from fastq.worker.report import Outcome, Report
from fastq_ext.holding import Holding

_log = logging.getLogger("fastq.worker")

FOR_EVER = 10 * 365 * 86400.0
COUNTED_WITHIN = 1.0  # seconds until jobs that were handed out, but have not ended, are counted


class Settler:
    """Settles the jobs of one holding until it is told to end and has nothing left to report.

    `room()` is called after each call: jobs that had ended are unsettled no more.
    """

    def __init__(self, client: AsyncClient, holding: Holding, room: Callable[[], None]) -> None:
        self._client = client
        self._holding = holding
        self._room = room
        self._number = 0
        self._kept: Report | None = None  # taken from the holding, and not settled yet
        self._touched = asyncio.Event()
        self._ending = False
        self.on_settled: Callable[[Report], None] = lambda report: None  # for the test kit

    def touch(self) -> None:
        """There is something to report."""
        self._touched.set()

    def end(self) -> None:
        """Report what there is, and return from `run`."""
        self._ending = True
        self._touched.set()

    async def run(self) -> None:
        """Report for as long as the holding counts. Raises WorkerFenced."""
        while True:
            if not self._ending and not self._holding.touched_any and self._kept is None:
                try:
                    async with asyncio.timeout(COUNTED_WITHIN):
                        await self._touched.wait()
                except TimeoutError:
                    pass
            self._touched.clear()
            if await self.report():
                continue
            if self._ending:
                return

    async def report(self) -> bool:
        """Report one call's worth; whether there was anything. One that fails is kept for the next time."""
        if self._kept is None:
            taken = self._holding.report()
            if taken is None:
                return False
            self._kept = Report(*taken)
        await self._settle(self._kept)
        self.on_settled(self._kept)
        self._holding.settled(self._kept.finished, self._kept.jobs)
        self._room()
        self._kept = None
        return True

    async def _settle(self, report: Report) -> None:
        self._number += 1
        request = requests.settle(self._holding.keys, self._holding.worker, self._number, report.arguments())
        try:
            lost = await self._client.call(request, patience=FOR_EVER)
        except ServerError as error:
            await self._settle_apart(report, error)
        else:
            if lost:
                _log.warning("queue=%s %d locks were no longer their jobs' own at their end", self._holding.keys.queue, lost)

    async def _settle_apart(self, report: Report, error: ServerError) -> None:
        """A report that the server refuses is halved until the guilty outcome is alone; that one goes dead with the error."""
        outcomes = report.outcomes
        if not outcomes:
            raise BrokerError(f"the queue {self._holding.keys.queue!r} cannot be settled: {error}") from error
        if len(outcomes) == 1:
            _log.error("queue=%s an outcome was refused by the server: %s", self._holding.keys.queue, error)
            await self._settle(replace(report, outcomes=_as_dead(outcomes[0], str(error))))
            return
        for half in report.halves():
            await self._settle(half)


def _as_dead(outcome: Outcome, why: str) -> list[Outcome]:
    """What takes the place of an outcome that cannot be settled; nothing for one that carries no whole message."""
    kind = outcome[0]
    if kind == "retry":
        return [("dead", outcome[2], f"its retry could not be stored: {why}")]
    return []
