"""Balance: fetched jobs that would wait too long for a slot here go back to the queue, where others are free."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from fastq_ext.holding import Holding
from fastq_ext.runner import Runner

LONGEST_WAIT = 0.1  # seconds that a fetched job may wait for a slot
LOOK_EVERY = 0.05


class Pool(Protocol):
    """What jobs may have to wait for although they have a slot."""

    def look(self) -> None:
        """Hand back those that would wait too long."""


class Balance:
    """Hands back what waits here too long, by the run times measured so far and by those of the jobs that run now."""

    def __init__(self, runner: Runner, holdings: list[Holding], pools: Sequence[Pool] = (),
                 given_back: Callable[[Holding, int], None] = lambda holding, jobs: None) -> None:  # fmt: skip
        self._runner = runner
        self._holdings = holdings
        self._pools = pools
        self._given_back = given_back

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            self.look()
            for pool in self._pools:
                pool.look()

    def look(self) -> int:
        """Hand back what is too much; returns how many jobs."""
        runner = self._runner
        if not runner.ready or runner.running < len(runner.slots):
            return 0
        now = time.monotonic()
        runs = runner.runs()
        # How long a job holds its slot: as measured, or as those that hold one now already do.
        holds = sum(max(run.line.mean, now - run.begun) for run in runs) / max(1, len(runs))
        may_wait = int(len(runner.slots) * LONGEST_WAIT / holds) if holds > 0 else runner.ready
        over = runner.ready - may_wait
        given = 0
        per_frame = max(1, min(64, int(LONGEST_WAIT / holds))) if holds > 0 else 64
        for holding in reversed(self._holdings):
            if over > given:
                back = holding.hand_back(over - given, per_frame)
                self._given_back(holding, back)
                given += back
        return given
