"""Beats for the children of a fleet, and the end of what a dead one held.

Where the queues are is told by the children, not read from the program as the supervisor has it: after a rolling restart the two
may differ.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection

from fastq.broker import requests
from fastq.broker.broker import Broker
from fastq.errors import BrokerError
from fastq.fleet.child import Child
from fastq.keys import QueueKeys, queue_keys
from fastq.worker.handover import config_of
from fastq.worker.heart import TELLS_EVERY

_log = logging.getLogger("fastq.fleet")

LONGEST_PAUSE = 1.0  # seconds between two beats
PATIENCE = 5.0  # seconds that the server gets to take back what a dead child held


class Home:
    """Where the queues of a program are. `told`: what a child says first."""

    def __init__(self, told: str) -> None:
        self._config = config_of(json.loads(told))
        self._broker = Broker(self._config)
        # A connection that died unheard has to be noticed, and replaced, well within the lease.
        self._client = self._broker.new_client(timeout=self._config.lease / 3, patience=self._config.lease / 3)
        self.period = min(LONGEST_PAUSE, self._config.lease / 5)
        self._complained = 0.0

    def close(self) -> None:
        """Close its connection."""
        self._client.close()
        self._broker.close()

    async def beat(self, children: Collection[Child]) -> None:
        """Beat once for each of these in each of its queues, and tell them."""
        began = time.monotonic()
        by_queue: dict[str, list[tuple[Child, str]]] = defaultdict(list)
        for child in children:
            for queue, worker in child.names:
                by_queue[queue].append((child, worker))
        try:
            for queue, members in by_queue.items():
                names = [worker.encode() for _, worker in members]
                known = await self._client.call(requests.beat(self._keys(queue), names))
                for (child, worker), alive in zip(members, known, strict=True):
                    if not alive and (queue, worker) in child.names:
                        child.names.discard((queue, worker))
                        child.tell(f"fenced {queue} {worker}")
        except BrokerError as error:
            self._complain(children, error)
            return  # they hear no "ok"; they know what that means
        for child in children:
            child.tell(f"ok {began}")

    async def take_out(self, queue: str, worker: str, *, died: bool) -> int:
        """Give what a worker held back to a queue; returns how many jobs that were. Raises BrokerError."""
        back, more = 0, True
        while more:
            request = requests.leave(self._keys(queue), worker.encode(), died=died, max_crashes=self._config.max_crashes)
            count, more = await self._client.call(request, patience=PATIENCE)
            back += count
        return back

    def _complain(self, children: Collection[Child], error: BrokerError) -> None:
        now = time.monotonic()
        if now - self._complained > TELLS_EVERY:
            self._complained = now
            for child in children:
                child.tell(f"silent {' '.join(str(error).split())}")

    def _keys(self, queue: str) -> QueueKeys:
        return queue_keys(self._config.namespace, queue)


class Beats:
    """Beats for those of the `children` for which `may_live(child)`."""

    def __init__(self, children: Collection[Child], may_live: Callable[[Child], bool]) -> None:
        self._children, self._may_live = children, may_live
        self._homes: dict[str, Home] = {}
        self._poked = asyncio.Event()

    def poke(self) -> None:
        """Beat now."""
        self._poked.set()

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self._poked.clear()
            pause = LONGEST_PAUSE
            for told in {child.told for child in self._children if child.told is not None}:
                try:
                    home = self._home(told)
                    await home.beat([child for child in self._children if child.told == told and self._may_live(child)])
                    pause = min(pause, home.period)
                except Exception:  # nothing that one program's server answers may end the beats of others
                    _log.exception("a beat failed")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._poked.wait()

    async def bring_back(self, child: Child, *, died: bool) -> None:
        """Give what a child held back to its queues at once, instead of waiting for its lease to end.

        `died` False: it was killed at the end of the fleet, which says nothing against its jobs.
        """
        if child.told is None:
            return
        try:
            for queue, worker in list(child.names):
                back = await self._home(child.told).take_out(queue, worker, died=died)
                child.names.discard((queue, worker))
                _log.info("queue=%s worker %s is taken out; %d jobs came back", queue, worker, back)
        except BrokerError as error:
            _log.warning("what worker process %d held comes back when its lease ends: %s", child.pid, error)

    def close(self) -> None:
        """Close all connections."""
        for home in self._homes.values():
            home.close()
        self._homes.clear()

    def _home(self, told: str) -> Home:
        if told not in self._homes:
            self._homes[told] = Home(told)
        return self._homes[told]
