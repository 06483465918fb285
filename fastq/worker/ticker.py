"""The ticker: once a second per queue, and when a job falls due, it lets the server promote, judge and prune."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from fastq.broker import requests
from fastq.broker.clients import AsyncClient
from fastq.config import Config
from fastq_ext.holding import Holding

_log = logging.getLogger("fastq.worker")

MOST_MOVED = 200  # jobs or entries in one call
COMPARE_EVERY = 10  # ticks


class Ticker:
    """Ticks one queue.

    `compare(holding)` is awaited now and then, to look for entries that were assigned unheard; `gate(holding, state)` hears
    whether the queue is paused, `cancel(holding, uids)` which jobs are asked to stop.
    """

    def __init__(
        self,
        client: AsyncClient,
        holding: Holding,
        config: Config,
        *,
        compare: Callable[[Holding], Awaitable[None]],
        gate: Callable[[Holding, str], None],
        cancel: Callable[[Holding, list[bytes]], None],
    ) -> None:
        self._client = client
        self._holding = holding
        self._config = config
        self._compare, self._gate, self._cancel = compare, gate, cancel
        self._poked = asyncio.Event()
        self.period = min(1.0, config.lease / 8)
        self.due_in: float | None = None  # seconds until the next scheduled job, as of the last tick

    def poke(self) -> None:
        """A job was scheduled that may be due before the next tick."""
        self._poked.set()

    async def run(self) -> None:
        """Tick until cancelled. Raises WorkerFenced, BrokerError."""
        ticks = 0
        while True:
            tick = await self.tick()
            ticks += 1
            if ticks % COMPARE_EVERY == 0:
                await self._compare(self._holding)
            if tick.more:
                continue
            wait = self.period if tick.due_in is None else min(self.period, tick.due_in)
            try:
                async with asyncio.timeout(wait):
                    await self._poked.wait()
            except TimeoutError:
                pass
            self._poked.clear()

    async def tick(self) -> requests.Tick:
        """Tick once, now. Raises WorkerFenced, BrokerError."""
        tick = await self._client.call(self._request())
        self.due_in = tick.due_in
        self._tell(tick)
        self._gate(self._holding, tick.gate)
        if tick.cancelled:
            self._cancel(self._holding, tick.cancelled)
        return tick

    def _request(self) -> requests.Request[requests.Tick]:
        bounds = self._config.max_dead
        return requests.tick(
            self._holding.keys,
            self._holding.worker,
            lease_ms=round(self._config.lease * 1000),
            limit=MOST_MOVED,
            max_crashes=self._config.max_crashes,
            dead_jobs=bounds.jobs,
            dead_bytes=bounds.size,
            dead_ms=round(bounds.age * 1000),
        )

    def _tell(self, tick: requests.Tick) -> None:
        queue = self._holding.keys.queue
        if tick.reclaimed:
            _log.warning("queue=%s %d jobs of workers that are gone were brought back", queue, tick.reclaimed)
        if tick.lost:
            _log.error("queue=%s %d jobs had lost their messages", queue, tick.lost)
