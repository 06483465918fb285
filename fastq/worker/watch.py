"""The watch: a thread that sees when the event loop is held up, and says by which job."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
from pathlib import Path
from types import FrameType, TracebackType

from fastq_ext.runner import Run, Runner

_log = logging.getLogger("fastq.worker")

LOOK_EVERY = 1.0  # seconds
PATIENCE = 1.0  # seconds that the loop may take to answer


class Watch:
    """Watches over the running event loop within its `with`: async code that blocks keeps every other job of a worker waiting."""

    def __init__(self, loop: asyncio.AbstractEventLoop, runner: Runner) -> None:
        self._loop, self._runner = loop, runner
        self._loop_thread = threading.get_ident()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fastq-watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.wait(LOOK_EVERY):
            answered, asked = threading.Event(), time.monotonic()
            with contextlib.suppress(RuntimeError):  # the loop was closed
                self._loop.call_soon_threadsafe(answered.set)
            if not answered.wait(PATIENCE) and not self._closing.is_set():
                _log.warning("%s held the event loop for more than %.1f s%s: the other jobs of this worker wait",
                             self._who(), PATIENCE, _where(sys._current_frames().get(self._loop_thread)))  # fmt: skip
                while not answered.wait(LOOK_EVERY):
                    if self._closing.is_set():
                        return
            elif (took := time.monotonic() - asked) > PATIENCE:
                # What holds the interpreter itself, as a regular expression does, holds this thread too.
                _log.warning("something held this process for %.1f s: all of its jobs waited", took)

    def _who(self) -> str:
        task = asyncio.current_task(self._loop)
        run: Run | None = next((slot.run for slot in list(self._runner.slots) if slot.task is task), None)
        return f"task={run.line.task.name} uid={run.message.uid.hex()}" if run is not None else "a service"


def _where(frame: FrameType | None) -> str:
    """The place in the code, for a log line."""
    if frame is None:
        return ""
    return f" (it is at {Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name})"
