"""The fetcher: the only door into the executor. It asks for as many jobs as there is room for, and waits when there are none.

Room is counted in jobs: the slots that are free, and about 100 ms of work at the measured rate, so that slow jobs are never
hoarded and fast ones never starve. Queues are read one by one, from the highest.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from fastq.broker import requests
from fastq.broker.clients import AsyncClient
from fastq.broker.requests import Entry, Fetched
from fastq.broker.talk import ServerError
from fastq.errors import BrokerError
from fastq.worker.shares import Shares
from fastq_ext.holding import Entry as HeldEntry
from fastq_ext.holding import Holding
from fastq_ext.runner import Runner

T = TypeVar("T")

_log = logging.getLogger("fastq.worker")

MOST_CREDIT = 2000  # jobs
MOST_WEIGHTED = 500  # jobs, where they are to run by weight: those at hand run frame by frame in turn
MOST_UNSETTLED = 4000  # jobs that have ended and of which the server does not know yet
AHEAD = 0.1  # seconds of work that may wait for a slot
TURNS = 4  # of a slot, by which the rate is known without waiting
MOST_ENTRIES = 1000  # of one read
LONGEST_WAIT = 1.0  # seconds
WAIT_OF_LEASE = 0.25
SUSPECT_LOOK = 0.05
STREAM, FRONT, SUSPECTS = 0, 1, 2


class Fetcher:
    """Keeps the holdings fed, in their order or by their `shares`.

    `rejoin(holding)` is called for a queue whose group or membership is gone. `lease` is in seconds.
    """

    def __init__(
        self,
        client: AsyncClient,
        waiting: AsyncClient,
        runner: Runner,
        holdings: list[Holding],
        *,
        unsound: Callable[..., None],
        woken: Callable[[Holding], None],
        rejoin: Callable[[Holding], Awaitable[None]],
        may_start: Callable[[], bool],
        lease: float,
        shares: Shares | None = None,
    ) -> None:
        self._client = client
        self._waiting = waiting
        self._runner = runner
        self._holdings = holdings
        self._shares = shares
        self._unsound, self._woken, self._rejoin, self._may_start = unsound, woken, rejoin, may_start
        # The server goes on with the wait of a worker that was frozen. It starts within 0.7 of the lease after a beat, and is
        # over before the lease is: else it would take the very jobs that are brought back from that worker.
        self._longest_wait = min(LONGEST_WAIT, WAIT_OF_LEASE * lease)
        self._room = asyncio.Event()
        self._stopping = asyncio.Event()
        self._jobs_per_entry = 1.0
        self._rate = 0.0  # jobs a second that end here, while there is work
        self._measured = (time.monotonic(), 0)
        self._unheard: set[bytes] = set()  # what `compare` took in during a wait, whose answer may yet come and bring it again
        self.paused: set[str] = set()
        self.found_nothing = False  # whether the last look at all queues brought no job

    def room(self) -> None:
        """A slot found nothing to do."""
        self._room.set()

    def stop(self) -> None:
        """Fetch no more."""
        self._stopping.set()
        self._room.set()

    async def run(self) -> None:
        """Fetch until told to stop. Raises BrokerError when the server cannot be reached; call it again then."""
        while not self._stopping.is_set():
            credit = self._credit() if self._may_start() else 0
            if credit <= 0:
                await self._wait_for_room()
                await self._look_above()
                continue
            if not await self.look(credit) and not self._stopping.is_set():
                await self._wait(credit)
                await asyncio.sleep(0)  # what was waited for begins before the next read is written

    async def look(self, credit: int = 1) -> int:
        """Read up to so many of the jobs that wait now, queue by queue; how many there were. Raises BrokerError."""
        found = await (self._look_by_weight(shares, credit) if (shares := self._shares) else self._look_in_order(credit))
        self.found_nothing = found == 0
        return found

    async def _look_in_order(self, credit: int) -> int:
        found = 0
        # Where queues take turns, the runner moves one whose entry was used up to the end.
        for holding in list(self._runner.holdings):
            found += await self._read(holding, credit - found)
            if found >= credit:
                break
        return found

    async def _look_by_weight(self, shares: Shares, credit: int) -> int:
        found = 0
        holdings = {holding.keys.queue: holding for holding in self._holdings}
        while holdings and found < credit:
            queue = shares.first(holdings)
            jobs = await self._read(holdings[queue], shares.part(queue, holdings, credit - found))
            if not jobs:
                shares.found_empty(queue)
                del holdings[queue]
            found += jobs
        return found

    async def _look_above(self) -> None:
        """In strict order: have a job at hand that came to a higher queue than those whose jobs wait here for a slot."""
        if self._shares is not None or self._runner.in_turn or not self._runner.ready or self._stopping.is_set():
            return
        for holding in list(self._runner.holdings):
            if holding.ready or not self._may_start():
                return
            await self._read(holding, 1)

    def given_back(self, holding: Holding, jobs: int) -> None:
        """So many of its jobs were fetched for nothing."""
        if self._shares is not None:
            self._shares.took(holding.keys.queue, -jobs)

    def _credit(self) -> int:
        runner = self._runner
        now, finished = time.monotonic(), runner.finished
        since, before = self._measured
        # A moment tells little, since slow jobs may end together in it; unless each slot has had several.
        if now - since >= AHEAD / 2 or finished - before > TURNS * len(runner.slots):
            rate = (finished - before) / max(now - since, 1e-6)
            self._rate = max(rate, 0.7 * self._rate)
            self._measured = (now, finished)
        if runner.unsettled > MOST_UNSETTLED:
            return 0  # a crash would repeat them all: first the server hears of them
        free = len(runner.slots) - runner.running
        most = MOST_CREDIT if self._shares is None else MOST_WEIGHTED
        return min(most, free + int(self._rate * AHEAD)) - runner.ready

    async def _wait_for_room(self) -> None:
        self._room.clear()
        try:
            async with asyncio.timeout(AHEAD / 2):
                await self._room.wait()
        except TimeoutError:
            pass

    async def _read(self, holding: Holding, credit: int) -> int:
        entries = max(1, min(MOST_ENTRIES, int(credit / self._jobs_per_entry)))
        suspects = not holding.suspects
        fetched = await self._ask(
            holding, requests.fetch(holding.keys, holding.worker, entries=entries, suspects=suspects)
        )
        if fetched is None:
            return 0
        self.gate(holding, fetched.gate)
        found = self._take(holding, FRONT, fetched.front)
        found += self._take(holding, STREAM, fetched.stream)
        return found + self._take(holding, SUSPECTS, fetched.suspects)

    async def _ask(self, holding: Holding, request: requests.Request[Fetched]) -> Fetched | None:
        if holding.keys.queue in self.paused and await self._still_paused(holding):
            return None
        try:
            return await self._client.call(request)
        except ServerError as error:
            if error.code != "NOGROUP":
                raise
            await self._renew(holding)
            return None

    async def _renew(self, holding: Holding) -> None:
        await self._rejoin(holding)
        await self.compare(holding)  # what the refused call had read from another stream was lost with its answer

    async def _still_paused(self, holding: Holding) -> bool:
        gate = await self._client.call(requests.gate(holding.keys))
        self.gate(holding, gate)
        return gate == "paused"

    async def _wait(self, credit: int) -> None:
        """Wait for the first job of any queue, for a while."""
        holdings = [holding for holding in self._holdings if holding.keys.queue not in self.paused]
        if not holdings:
            await self._wait_for_room()
            return
        entries = max(1, min(MOST_ENTRIES, int(credit / self._jobs_per_entry)))
        # A worker has one name in all queues, unless it was taken for dead in one: then that one is looked at by reads alone.
        worker = holdings[0].worker
        holdings = [holding for holding in holdings if holding.worker == worker]
        request = requests.wait([h.keys for h in holdings], worker, entries=entries, seconds=self._longest_wait)
        self._unheard.clear()
        waiting = self._waiting.call(request)
        try:
            found, gates = await (self._beside_suspects(waiting) if any(h.suspects for h in holdings) else waiting)
        except BrokerError as error:
            if self._stopping.is_set():
                return  # the connection was closed to end this wait
            if not isinstance(error, ServerError) or error.code != "NOGROUP":
                raise
            for holding in holdings:
                await self._renew(holding)
            return
        for holding, gate in zip(holdings, gates, strict=True):
            self.gate(holding, gate)
            for place, key in ((FRONT, holding.keys.front), (STREAM, holding.keys.stream)):
                if key in found:
                    self._take(holding, place, [entry for entry in found[key] if entry[0] not in self._unheard])

    async def _beside_suspects(self, waiting: Coroutine[Any, Any, T]) -> T:
        """Wait, but read the next suspect as soon as the one in hand has ended: a wait for jobs would not see it."""
        task = asyncio.ensure_future(waiting)
        try:
            while not (await asyncio.wait({task}, timeout=SUSPECT_LOOK))[0]:
                for holding in list(self._holdings):
                    if not holding.suspects and not task.done():
                        await self._read(holding, 1)
            return task.result()
        finally:
            task.cancel()

    def gate(self, holding: Holding, gate: str) -> None:
        """Whether the queue is paused, or jobs of it were cancelled, as of now."""
        holding.gate = gate != ""
        if gate == "paused":
            self.paused.add(holding.keys.queue)
            self.given_back(holding, holding.hand_back(holding.ready, 64))
        else:
            self.paused.discard(holding.keys.queue)

    def _take(self, holding: Holding, stream: int, entries: list[Entry]) -> int:
        if not entries:
            return 0
        jobs, odd = holding.take(stream, entries)
        for one in odd:
            if isinstance(one, HeldEntry):
                self._unsound(one)
                continue
            entry_id, fields = one
            holding.done(stream, entry_id)
            if fields is None:
                holding.count("lost")
            else:
                self._woken(holding)
        if jobs:
            self.found_nothing = False
            if self._shares is not None:
                self._shares.took(holding.keys.queue, jobs)
            self._jobs_per_entry += 0.2 * (jobs / len(entries) - self._jobs_per_entry)
            self._runner.feed()
        return jobs

    async def compare(self, holding: Holding) -> None:
        """Take in entries that the group says are ours and that we do not know: a reply was lost on its way."""
        with holding.watch_ends() as ended:
            known = await self._client.call(requests.held(holding.keys, holding.worker))
            unknown = [(s, entry_id) for s, entry_id in known if entry_id not in holding.entries and entry_id not in ended]
            for stream, key in ((STREAM, holding.keys.stream), (FRONT, holding.keys.front), (SUSPECTS, holding.keys.suspects)):
                ids = [entry_id for s, entry_id in unknown if s == stream]
                if ids:
                    bodies = await self._client.call(requests.entry_bodies(key, ids))
                    _log.info("queue=%s %d entries had been assigned unheard", holding.keys.queue, len(ids))
                    unheard = [body for body in bodies if body[0] not in ended]
                    self._unheard.update(body[0] for body in unheard)
                    self._take(holding, stream, unheard)

