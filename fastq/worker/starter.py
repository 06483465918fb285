"""The starter: asks the server for jobs that may not start unasked (gated, tracked, expiring, with a lock that starts)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from fastq.broker import requests
from fastq.broker.clients import AsyncClient
from fastq.broker.requests import Asked
from fastq.worker.executor import head_of
from fastq.worker.settler import FOR_EVER
from fastq_ext.holding import Entry, Holding
from fastq_ext.runner import Runner

_log = logging.getLogger("fastq.worker")

_STREAMS = (b"stream", b"front", b"suspects")
MOST_AT_ONCE = 200
TRACK_MS = 30 * 86_400_000  # that a running job's state is kept, should everything that could end it vanish


class Starter:
    """Asks for one holding, until cancelled. While `may_start()` is false, what might start is handed back."""

    def __init__(
        self,
        client: AsyncClient,
        runner: Runner,
        holding: Holding,
        now_ms: Callable[[], int],
        lease_ms: int,
        may_start: Callable[[], bool],
    ) -> None:
        self._client = client
        self._runner = runner
        self._holding = holding
        self._now_ms = now_ms
        self._lease_ms = lease_ms
        self._may_start = may_start
        self._number = 0
        self._asking = asyncio.Event()

    def ask(self) -> None:
        """A job has to ask."""
        self._asking.set()

    async def run(self) -> None:
        """Ask for what has to, a batch at a time. Raises WorkerFenced."""
        while True:
            await self._asking.wait()
            self._asking.clear()
            while batch := self._holding.take_asking(MOST_AT_ONCE):
                await self._ask_for(batch)

    async def _ask_for(self, batch: list[tuple[Entry, int]]) -> None:
        holding = self._holding
        alive: list[tuple[Entry, int]] = []
        asked: list[Asked] = []
        for entry, place in batch:
            message = entry.frame[place]
            if message.expires_ms is not None and message.attempt == 1 and self._now_ms() > message.expires_ms:
                self._end(entry, place, message, "expired")
            else:
                alive.append((entry, place))
                asked.append(Asked(_STREAMS[entry.stream], entry.id, place, head_of(message)))
        if not asked:
            return
        self._number += 1
        request = requests.start(
            holding.keys, holding.worker, self._number, asked, track_ms=TRACK_MS, lease_ms=self._lease_ms
        )
        verdicts = await self._client.call(request, patience=FOR_EVER)
        # The answer may be old: a worker that was away while it came may have been taken for dead.
        may_start = self._may_start()
        for (entry, place), (verdict, changed) in zip(alive, verdicts, strict=True):
            if verdict in "gn" and may_start:
                holding.clear(entry, place, changed)
            elif verdict == "c":
                self._end(entry, place, entry.frame[place], "cancelled")
            elif verdict == "k":
                holding.end(entry, place)  # parked on the server, behind the job that runs
            else:
                holding.end(entry, place, ("back", 1, changed or entry.frame.message_bytes(place)))
        self._runner.feed()

    def _end(self, entry: Entry, place: int, message: Any, state: str) -> None:
        _log.info("queue=%s task=%s uid=%s %s", self._holding.keys.queue, message.task, message.uid.hex(), state)
        self._holding.count(state)
        self._holding.count(f"{state}:{message.task}")
        self._holding.end(entry, place, ("end", state, int(message.attempt > 1), head_of(message)))
