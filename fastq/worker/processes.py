"""Processes for tasks with `executor="process"`: a job in one can really be stopped, and cannot take its worker with it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from asyncio import CancelledError
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from fastq import logs
from fastq.task import Task
from fastq.worker.homes import Home, file_of_main, home_of
from fastq.worker.places import LOOK_EVERY, Places, Waiter
from fastq.worker.process import Process
from fastq.worker.process_words import Order, Raised, Setup, Told
from fastq.worker.remote_errors import error_of
from fastq_ext.runner import Run, current_run

_log = logging.getLogger("fastq.worker")
_decode = msgspec.msgpack.Decoder().decode

END_WITHIN = 0.3  # seconds that idle processes have to end by themselves


class Processes:
    """Runs functions in processes, `count` at most (None: one per core), started when there is work for them."""

    def __init__(self, count: int | None = None) -> None:
        self._places: Places[Waiter] = Places(count or _cores())
        self._homes: set[Home] = set()
        self._processes: set[Process] = set()
        self._idle: list[Process] = []
        self._closed = False

    def caller(self, task: Task[Any, Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
        """A coroutine function that calls the task's function in a process. Raises ConfigError when none could find it."""
        home = home_of(task)
        self._homes.add(home)

        async def call(*args: Any, **kwargs: Any) -> Any:
            # The arguments have been decoded, so they fit; the process decodes them for itself.
            run = current_run()
            assert run is not None
            process = await self._place_for(run)
            if process is None:
                return None
            try:
                return await self._run_in(process, run, home, task)
            finally:
                self._free(process)

        return call

    def look(self) -> None:
        """Hand back the jobs that would wait too long for a process."""
        self._places.look([process.run for process in self._processes if process.run is not None])

    async def close(self) -> None:
        """End all processes."""
        self._closed = True
        for process in self._processes:
            if process in self._idle:
                process.let_go()
            else:
                process.kill()
        ends = [process.end for process in self._processes]
        if ends:
            await asyncio.wait(ends, timeout=END_WITHIN)
            for process in self._processes:
                process.kill()
            await asyncio.wait(ends, timeout=END_WITHIN)

    # --- who gets which process

    async def _place_for(self, run: Run) -> Process | None:
        """A process, when it is this job's turn; None when the job was handed back meanwhile."""
        run.wait()
        waiter = Waiter(run, asyncio.get_running_loop().create_future())
        self._places.waiting.append(waiter)
        self._assign()
        try:
            process: Process | None = await waiter.future
        except CancelledError:
            self._places.withdraw(waiter)
            if waiter.future.done() and not waiter.future.cancelled() and not waiter.future.exception():
                self._free(waiter.future.result())  # it was given to us in the same moment
            raise
        if process is not None and not await self._may_start(run, process):
            return None
        return process

    async def _may_start(self, run: Run, process: Process) -> bool:
        """Wait until it is known that the job is still ours; False, and the process is free again, when it is not."""
        try:
            while not run.start():
                if not run.alive:
                    self._free(process)
                    return False
                await asyncio.sleep(LOOK_EVERY)
        except CancelledError:
            self._free(process)
            raise
        return True

    def _free(self, process: Process | None) -> None:
        if process is not None:
            process.run = None
            if process.alive:
                self._idle.append(process)
        self._assign()

    def _assign(self) -> None:
        waiting = self._places.waiting
        while waiting and self._idle:
            waiter = waiting.popleft()
            if not waiter.future.done():
                process = self._idle.pop()
                process.run = waiter.run
                waiter.future.set_result(process)
        starting = sum(not process.ready.done() for process in self._processes)
        for _ in range(min(len(waiting) - starting, self._places.count - len(self._processes))):
            self._start()
        if self._places.crowded:
            self.look()

    def _start(self) -> None:
        if not self._closed:
            process = Process(self._setup())
            self._processes.add(process)
            process.ready.add_done_callback(lambda ready: self._on_ready(process, ready))
            process.end.add_done_callback(lambda _: self._on_end(process))

    def _on_ready(self, process: Process, ready: asyncio.Future[None]) -> None:
        if ready.cancelled():
            return
        error = ready.exception()
        if error is None:
            self._free(process)
            return
        if not self._closed:
            _log.error("a process for tasks could not be started: %s", error)
        while self._places.waiting:  # or each of them would wait for a process that fails in the same way
            waiter = self._places.waiting.popleft()
            if not waiter.future.done():
                waiter.future.set_exception(error)

    def _on_end(self, process: Process) -> None:
        self._processes.discard(process)
        if process in self._idle:
            self._idle.remove(process)
        self._assign()

    def _setup(self) -> Setup:
        main_file = file_of_main() if any(not home.module for home in self._homes) else ""
        modules = sorted({home.module for home in self._homes if home.module})
        return Setup(list(sys.path), list(sys.argv), main_file, modules, logs.as_set_up())

    # --- a job in its process

    async def _run_in(self, process: Process, run: Run, home: Home, task: Task[Any, Any]) -> Any:
        answer = process.ask(_order(run, home, task))
        told = False
        while not answer.done():
            try:
                await asyncio.shield(answer)
            except CancelledError:
                if answer.done() and not answer.cancelled():
                    break
                if told or run.reason != "shutdown":
                    process.kill()
                    await asyncio.wait([process.end])
                    raise
                told = True
                process.say(Told("shutdown"))
            except GeneratorExit:  # the slot is closed by force
                process.kill()
                raise
        said = answer.result()
        if isinstance(said, Raised):
            raise error_of(said)
        if told and said.heeded:
            raise CancelledError
        return _decode(said.value)


def _order(run: Run, home: Home, task: Task[Any, Any]) -> Order:
    holding = run.holding
    return Order(
        home,
        task.name,
        run.message.raw,
        queue=holding.keys.queue,
        begun=run.begun,
        timeout=run.timeout,
        fence=run.fence,
        clock_ahead=holding.now_ms() - round(time.time() * 1000),
        renews=run.renews,
        lease=holding.heart.lease,
        keeps=task.result_ttl is not None,
    )


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
