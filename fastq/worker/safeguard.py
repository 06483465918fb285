"""The safeguard: a worker that cannot be sure that it still counts as alive runs no job whose lock is to live as long as it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from fastq.worker.heart import Heart
from fastq_ext.holding import Holding
from fastq_ext.runner import Run, Runner

_log = logging.getLogger("fastq.worker")

LOOK_EVERY = 0.1  # seconds
SECOND_LOOK = 0.05  # seconds for the word of a beat that came while the event loop was held


class Safeguard:
    """Stops `renew` runs, by `tell(run, "doubt")`, when no beat was taken for 0.7 of the lease, and hands back what waits here.

    After the whole lease others take the locks of these runs, so they must have ended by then.
    """

    def __init__(
        self, heart: Heart, runner: Runner, holdings: list[Holding], tell: Callable[[Run, str], None]
    ) -> None:
        self._heart = heart
        self._runner = runner
        self._holdings = holdings
        self._tell = tell

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if not self._heart.well:
                await asyncio.sleep(SECOND_LOOK)
                if not self._heart.well:
                    self.stop_renewing(self._holdings)
                    for holding in self._holdings:
                        holding.hand_back_asking()
                        holding.hand_back(holding.ready, 64)

    def stop_renewing(self, holdings: list[Holding]) -> None:
        """Cancel the runs of these holdings whose locks this worker may lose, or has lost."""
        for run in self._runner.runs():
            if run.renews and run.reason is None and run.holding in holdings:
                _log.error("task=%s uid=%s is cancelled: this worker's beat may not have been heard in time",
                           run.line.task.name, run.message.uid.hex())  # fmt: skip
                self._tell(run, "doubt")
