"""Deadlines: attempts that run too long are cancelled. One look at all slots every now and then, instead of a timer per job."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from fastq_ext.holding import Holding
from fastq_ext.runner import Run, Runner

_log = logging.getLogger("fastq.worker")

LOOK_EVERY = 0.1  # seconds
PATIENCE = 5.0  # seconds that a job may take to end after it was told to
LAST_PATIENCE = 0.5  # seconds after it was told a second time


@dataclass(slots=True)
class _Told:
    run: Run
    until: float
    again: bool = False


class Deadlines:
    """Tells late runs to stop. Those that do not listen are told again; those that do not even then lose their turn and are
    ended by force.

    A thread or a process leaves its job when it is told for the second time at the latest, so whoever does not is a
    coroutine that swallows its cancellation.
    """

    def __init__(self, runner: Runner, failed: Callable[[Run, BaseException], None], replace: Callable[[Run], None]) -> None:
        self._runner = runner
        self._failed = failed
        self._replace = replace
        self._told: list[_Told] = []

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            now = time.monotonic()
            for run in self._runner.late(now):
                self.tell(run, "timeout")
            self._told = [told for told in self._told if self._waits_for(told, now)]

    def cancel(self, holding: Holding, uids: list[bytes]) -> None:
        """Tell the runs of these jobs to stop, if they are here."""
        wanted = set(uids)
        for run in self._runner.runs():
            if run.holding is holding and run.reason is None and run.message.uid in wanted:
                self.tell(run, "cancel")

    def tell(self, run: Run, reason: str) -> None:
        """Cancel a run. `reason`: "timeout", "cancel", "shutdown" or "doubt" (safeguard.py); the first one stays."""
        run.reason = run.reason or reason
        self._told.append(_Told(run, time.monotonic() + PATIENCE))
        self.insist(run)

    def insist(self, run: Run) -> None:
        """Tell it again."""
        if run.slot.task is not None:
            run.slot.task.cancel()

    def _waits_for(self, told: _Told, now: float) -> bool:
        run = told.run
        if run.slot.run is not run:
            return False
        if now < told.until:
            return True
        if not told.again:
            told.again, told.until = True, now + LAST_PATIENCE
            self.insist(run)
            return True
        self.give_up(run)
        return False

    def give_up(self, run: Run) -> None:
        """End the turn of a run that goes on although it was told twice. What it does counts no more."""
        _log.error("task=%s uid=%s does not end although it was cancelled: it is ended by force",
                   run.line.task.name, run.message.uid.hex())  # fmt: skip
        if run.alive:
            self._failed(run, asyncio.CancelledError())
        run.ended = True
        self._replace(run)
        end_by_force(run)


def end_by_force(run: Run) -> None:
    """Close the coroutine of a run whose outcome counts no more, and the task it was in: neither may outlive its turn."""
    slot = run.slot
    try:
        slot.close()
    except RuntimeError:
        _log.error("task=%s uid=%s cannot even be ended by force", run.line.task.name, run.message.uid.hex())
    if slot.task is not None:
        slot.task.cancel()
