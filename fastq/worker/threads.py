"""Threads for sync tasks.

They are daemons of our own: neither a job that never ends nor the interpreter's exit has to wait for them, and the event loop is
woken once for all jobs that have ended meanwhile.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import threading
import time
from asyncio import CancelledError
from collections import deque
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any

from fastq.worker.places import LOOK_EVERY, Places, Waiter
from fastq_ext.runner import Run, current_run

_log = logging.getLogger("fastq.worker")

THREADS = 32


class _Call(Waiter):
    """A call that a thread makes for a job."""

    __slots__ = ("args", "context", "ended", "error", "function", "kwargs", "value")

    def __init__(self, run: Run, future: asyncio.Future[None], function: Any, args: Any, kwargs: Any) -> None:
        super().__init__(run, future)
        self.function, self.args, self.kwargs = function, args, kwargs
        self.context = contextvars.copy_context()
        self.value: Any = None
        self.error: BaseException | None = None
        self.ended = False

    def make(self) -> None:
        """Call the function. Whatever it raises is the job's: not even SystemExit is the worker's."""
        while not self.run.start():
            if not self.run.alive or self.run.reason is not None:
                self.error = CancelledError()
                return
            time.sleep(LOOK_EVERY)
        try:
            self.value = self.context.run(self.function, *self.args, **self.kwargs)
        except BaseException as error:
            self.error = error

    def result(self) -> Any:
        """What the function returned. Raises what it raised."""
        error, self.error = self.error, None
        if error is None:
            return self.value
        try:
            raise error
        finally:
            del error  # it refers to this frame


class Threads:
    """Calls functions in threads, each in the context of its job, so that `current_job()` works there too.

    A thread cannot be stopped. One whose job is out of time, or does not end although it was told to, is left to it: it counts no
    more as one of the THREADS, what its job does counts no more either, and it ends with it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._places: Places[_Call] = Places(THREADS)
        self._tokens: SimpleQueue[None] = SimpleQueue()  # one for each call that was put in: what threads wait for
        self._busy: dict[_Call, None] = {}  # calls in threads; taking one out decides whether its thread was left to it
        self._ended: deque[_Call] = deque()
        self._woken = False  # the loop will look at what has ended
        self._threads = 0
        self._open = 0  # jobs that want a thread or have one
        self._closed = False
        self._names = itertools.count(1)
        self._warned: set[str] = set()

    def caller(self, function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
        """A coroutine function that calls `function` in a thread."""

        async def call(*args: Any, **kwargs: Any) -> Any:
            run = current_run()
            assert run is not None
            job = _Call(run, self._loop.create_future(), function, args, kwargs)
            self._open += 1
            try:
                self._put_in(job)
                return await self._result(job)
            finally:
                self._open -= 1

        return call

    def look(self) -> None:
        """Hand back the jobs that would wait too long for a thread."""
        self._places.look([call.run for call in list(self._busy)])

    def close(self) -> None:
        """Let go of the threads; those that still run a job are left to it."""
        self._closed = True
        for _ in range(self._threads):
            self._tokens.put(None)

    # --- on the event loop

    def _put_in(self, job: _Call) -> None:
        job.run.wait()
        self._provide()
        self._places.waiting.append(job)
        self._tokens.put(None)

    def _provide(self) -> None:
        if self._threads < min(self._open, self._places.count):
            thread = threading.Thread(target=self._serve, name=f"fastq-task-{next(self._names)}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no more threads for us
                if not self._threads:
                    raise
            else:
                self._threads += 1

    async def _result(self, job: _Call) -> Any:
        """Wait for the end. One that is told to stop gets time to look, but not when its time is what it has no more of."""
        told = False
        while not job.ended:
            try:
                await job.future
            except CancelledError:
                if job.ended:
                    break
                if told or job.run.reason == "timeout" or self._places.withdraw(job):
                    self._leave(job)
                    raise
                told = True
                job.future = self._loop.create_future()
            except GeneratorExit:  # the slot is closed by force
                self._leave(job)
                raise
            else:
                if job.run.ended:
                    return None  # it was handed back while it waited
        if told and job.run.heeded:
            raise CancelledError
        return job.result()

    def _leave(self, job: _Call) -> None:
        """Leave a thread to its job, if it is in one."""
        if self._busy.pop(job, job) is job:
            return
        self._threads -= 1
        task = job.run.message.task
        if task not in self._warned:
            self._warned.add(task)
            _log.warning(
                "task=%s uid=%s does not end although it was told to, and a thread cannot be stopped: it goes on beside the"
                " others. Look at current_job().cancelled in this task, or give it executor=\"process\"",
                task, job.run.message.uid.hex(),
            )  # fmt: skip
        if self._places.waiting:
            self._provide()

    def _on_ends(self) -> None:
        self._woken = False  # before looking: an end that comes now wakes us again
        while self._ended:
            job = self._ended.popleft()
            job.ended = True
            if not job.future.done():
                job.future.set_result(None)
        if self._places.crowded:
            self.look()

    # --- in the threads

    def _serve(self) -> None:
        while True:
            self._tokens.get()
            if self._closed:
                return
            try:
                job = self._places.waiting.popleft()
            except IndexError:  # the job for this token was taken back
                continue
            self._busy[job] = None
            job.make()
            if self._busy.pop(job, job) is job:
                return  # this thread was left to its job
            self._ended.append(job)
            del job
            if not self._woken:
                self._woken = True
                try:
                    self._loop.call_soon_threadsafe(self._on_ends)
                except RuntimeError:  # the loop has been closed
                    return
