"""Deadlines: attempts that run too long are cancelled. One look at all slots every now and then, instead of a timer per job."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from fastq_ext.holding import Holding
from fastq_ext.runner import Run, Runner

_log = logging.getLogger("fastq.worker")

LOOK_EVERY = 0.1  # seconds
PATIENCE = 5.0  # seconds that a cancelled job may take to end


class Deadlines:
    """Tells late runs to stop; those that do not listen lose their turn and are ended by force."""

    def __init__(self, runner: Runner, failed: Callable[[Run, BaseException], None], replace: Callable[[Run], None]) -> None:
        self._runner = runner
        self._failed = failed
        self._replace = replace
        self._told: list[tuple[float, Run]] = []

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            now = time.monotonic()
            for run in self._runner.late(now):
                self.tell(run, "timeout")
            self._told = [(at, run) for at, run in self._told if self._waits_for(at, run, now)]

    def cancel(self, holding: Holding, uids: list[bytes]) -> None:
        """Tell the runs of these jobs to stop, if they are here."""
        wanted = set(uids)
        for run in self._runner.runs():
            if run.holding is holding and run.reason is None and run.message.uid in wanted:
                self.tell(run, "cancel")

    def tell(self, run: Run, reason: str) -> None:
        """Cancel a run. `reason`: "timeout", "cancel", "shutdown" or "doubt" (safeguard.py)."""
        run.reason = reason
        if run.slot.task is not None:
            run.slot.task.cancel()
        self._told.append((time.monotonic(), run))

    def _waits_for(self, at: float, run: Run, now: float) -> bool:
        if run.slot.run is not run:
            return False
        if now - at < PATIENCE:
            return True
        _log.error("task=%s uid=%s does not end although it was cancelled: it is ended by force",
                   run.line.task.name, run.message.uid.hex())  # fmt: skip
        if run.alive:
            self._failed(run, asyncio.CancelledError())
        run.ended = True
        self._replace(run)
        end_by_force(run)
        return False


def end_by_force(run: Run) -> None:
    """Close the coroutine of a run whose outcome counts no more, and the task it was in: neither may outlive its turn."""
    slot = run.slot
    try:
        slot.close()
    except RuntimeError:
        _log.error("task=%s uid=%s cannot even be ended by force", run.line.task.name, run.message.uid.hex())
    if slot.task is not None:
        slot.task.cancel()
