"""The fleet: several worker processes of one program, kept running, and ended together.

A child that dies is replaced, and what it held goes back to the queue at once. A child whose fleet is gone, even by
SIGKILL, ends by itself: each has the reading end of a pipe (its lifeline) whose other end the fleet alone holds.
"""
from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastq.broker import inspection, requests
from fastq.errors import BrokerError
from fastq.keys import QueueKeys, queue_keys

if TYPE_CHECKING:
    from fastq.app import FastQ

_log = logging.getLogger("fastq.fleet")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds until a child that died is replaced
SOUND_AFTER = 10.0  # seconds of life after which a death is not taken for the continuation of the last one
MARGIN = 10.0  # seconds beyond the grace time until a child that does not end is killed
AT_ONCE = 2.0  # seconds that a child gets which was told to end at once


@dataclass(eq=False, frozen=True, slots=True)
class Child:
    """A worker process. `token` is in its names in the queues and in no other's; `lifeline` is the fleet's end."""

    process: asyncio.subprocess.Process
    token: str
    lifeline: int
    begun: float

    def send(self, signum: int) -> None:
        """Send a signal, if it has not ended."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signum)


class Fleet:
    """Keeps `processes` workers running until `stop()`, or until each has ended by itself in good order.

    `command` starts one worker; the fleet appends `--child FD:TOKEN` (see `Lifeline`). `queues` are those that the
    workers serve. `grace` is the workers' own, in seconds. `env` adds to the environment, `log` is a file for what the
    children write (None: where this process writes).

    >>> fleet = Fleet(app, command, processes=2, queues=["default"])  # doctest: +SKIP
    >>> fleet.run()  # doctest: +SKIP
    """

    def __init__(
        self,
        app: FastQ,
        command: Sequence[str],
        *,
        processes: int,
        queues: Iterable[str],
        grace: float = 25.0,
        env: Mapping[str, str] | None = None,
        log: int | None = None,
    ) -> None:
        self._app = app
        self._command = list(command)
        self._processes = processes
        self._queues = list(queues)
        self._grace = grace
        self._env = {**os.environ, **(env or {})}
        self._log = log
        self._stopping = asyncio.Event()
        self._children: set[Child] = set()
        self.started: list[int] = []  # every process that was started so far
        self.deaths = 0  # children that ended before they should

    @property
    def pids(self) -> list[int]:
        """The processes that run now."""
        return [child.process.pid for child in self._children]

    def run(self) -> None:
        """Keep the children running until all have ended. SIGTERM and SIGINT stop them; a second signal, at once."""
        asyncio.run(self._run_until_signalled())

    async def _run_until_signalled(self) -> None:
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self.stop)
        await self.arun()
        await self._app.aclose()

    async def arun(self) -> None:
        """`run()` on the running event loop, and without the signals. Cancelling it ends the children at once."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._processes):
                    group.create_task(self._keep_one())
        finally:
            for child in self._children:  # it was cancelled
                child.send(signal.SIGKILL)
                await child.process.wait()
                os.close(child.lifeline)

    def stop(self) -> None:
        """End all children in good order, as SIGTERM does; a second call ends them at once. For the loop's thread."""
        patience = AT_ONCE if self._stopping.is_set() else self._grace + MARGIN
        self._stopping.set()
        for child in self._children:
            child.send(signal.SIGTERM)
        asyncio.get_running_loop().call_later(patience, self._kill)

    def _kill(self) -> None:
        for child in self._children:
            _log.error("worker process %d does not end: it is killed", child.process.pid)
            child.send(signal.SIGKILL)

    async def _keep_one(self) -> None:
        """One place in the fleet: a child, and the next one when it dies."""
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            child = await self._start()
            code = await child.process.wait()
            self._children.discard(child)
            os.close(child.lifeline)
            had_left = await self._bring_back(child)
            if self._stopping.is_set() or (code == 0 and had_left):
                return
            self.deaths += 1
            pid, ended = child.process.pid, _how_it_ended(code)
            pause = FIRST_PAUSE if time.monotonic() - child.begun > SOUND_AFTER else min(2 * pause, LONGEST_PAUSE)
            _log.error("worker process %d %s; another one starts in %.1f s", pid, ended, pause)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()

    async def _start(self) -> Child:
        reading, writing = os.pipe()  # not inheritable: no other child gets the writing end
        token = secrets.token_hex(4)
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                "--child",
                f"{reading}:{token}",
                pass_fds=(reading,),
                env=self._env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                process_group=0,  # the terminal's signals are for the fleet alone, which passes them on
            )
        except BaseException:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        child = Child(process, token, writing, time.monotonic())
        self._children.add(child)
        self.started.append(process.pid)
        if self._stopping.is_set():
            child.send(signal.SIGTERM)
        return child

    async def _bring_back(self, child: Child) -> bool:
        """Give what a dead child held back to its queues, instead of waiting for its lease to end.

        Returns whether there was nothing to do: a worker that ends in good order has left its queues by itself. (A job
        can end its process with any exit code.)
        """
        died = not self._stopping.is_set()  # one that was killed at the end says nothing against its jobs
        had_left = True
        try:
            for queue in self._queues:
                keys = queue_keys(self._app.config.namespace, queue)
                for worker in await self._app.broker.acall(inspection.workers(keys)):
                    if f"-{child.token}-".encode() in worker:
                        had_left = False
                        await self._take_out(keys, worker, died=died)
        except BrokerError as error:
            _log.warning("what worker process %d held comes back when its lease ends: %s", child.process.pid, error)
        return had_left

    async def _take_out(self, keys: QueueKeys, worker: bytes, *, died: bool) -> None:
        back, more = 0, True
        while more:
            request = requests.leave(keys, worker, died=died, max_crashes=self._app.config.max_crashes)
            count, more = await self._app.broker.acall(request)
            back += count
        _log.info("queue=%s worker %s is taken out; %d jobs came back", keys.queue, worker.decode(), back)


def _how_it_ended(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


class Lifeline:
    """The child's end: what its fleet told it, and a watch over the fleet's life."""

    def __init__(self, told: str) -> None:
        """`told`: FD:TOKEN. Raises ValueError for anything else."""
        fd, _, self.token = told.partition(":")
        self._fd = int(fd)
        os.set_inheritable(self._fd, False)

    def watch(self, grace: float) -> None:
        """End this process in good order when the fleet is gone, and by force if that takes too long."""
        threading.Thread(target=self._watch, args=(grace,), name="fastq-lifeline", daemon=True).start()

    def _watch(self, grace: float) -> None:
        os.read(self._fd, 1)  # nothing is ever written: it returns when the other end is closed
        _log.error("the fleet is gone: this worker ends")
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace + MARGIN)
        os._exit(1)
