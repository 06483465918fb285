"""The worker's end of a process for tasks: starts it, lets it run a job, hears how that went, and kills it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys

import msgspec

from fastq.worker.process_words import Order, Raised, Ready, Returned, Setup, frame, hear_child
from fastq_ext.runner import Run

START_WITHIN = 60.0  # seconds that the imports of the tasks may take
LAST_WORDS = 0.1  # seconds in which what a process wrote before it ended is read


class ProcessDied(Exception):
    """The process of a job died under it."""


class Process:
    """A process that runs one job after another.

    `run` is the job in it. `ready` is done when it has imported the tasks, and raises ProcessDied or OSError when it could
    not be started; `end` is done when it has ended.
    """

    def __init__(self, setup: Setup) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._answer: asyncio.Future[Returned | Raised] | None = None
        self.run: Run | None = None
        self.alive = True
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.end: asyncio.Task[None] = asyncio.create_task(self._live(setup), name="fastq-process")

    def ask(self, order: Order) -> asyncio.Future[Returned | Raised]:
        """Let it run a job. The future raises ProcessDied when it dies under it."""
        self._answer = asyncio.get_running_loop().create_future()
        self.say(order)
        return self._answer

    def say(self, said: msgspec.Struct) -> None:
        """Write to it, if it is there to read."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(frame(said))

    def let_go(self) -> None:
        """It ends by itself when it reads no more."""
        if self._writer is not None:
            self._writer.close()

    def kill(self) -> None:
        """End it at once, and all that its job has started."""
        self.alive = False
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _live(self, setup: Setup) -> None:
        """Start it, and hear what it says until it has ended."""
        why: BaseException = ProcessDied("the process was not started")
        try:
            reader = await self._open()
            self.say(setup)
            if not self.alive:  # killed while it came to life
                self.kill()
            assert self._process is not None
            waiting = asyncio.get_running_loop().call_later(START_WITHIN, self._give_up_start)
            listening = asyncio.create_task(self._listen(reader))
            why = ProcessDied(_how(await self._process.wait()))
            waiting.cancel()
            self.kill()  # what it has started ends with it
            await asyncio.wait([listening], timeout=LAST_WORDS)
            listening.cancel()
        except OSError as error:
            why = error
        finally:
            self.alive = False
            self.let_go()
            for waited_for in (self.ready, self._answer):
                if waited_for is not None and not waited_for.done():
                    waited_for.set_exception(why)
                    waited_for.exception()  # seen: whoever has killed it does not wait for it

    async def _open(self) -> asyncio.StreamReader:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-P", "-m", "fastq.worker.process_child", str(theirs.fileno()),
                    stdin=asyncio.subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True,
                )  # fmt: skip
            except BaseException:
                ours.close()
                raise
        reader, self._writer = await asyncio.open_connection(sock=ours)
        return reader

    def _give_up_start(self) -> None:
        if not self.ready.done():
            self.ready.set_exception(ProcessDied(f"the process had not imported the tasks after {START_WITHIN:g} s"))
            self.kill()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                size = int.from_bytes(await reader.readexactly(4), "little")
                said = hear_child(await reader.readexactly(size))
                if isinstance(said, Ready):
                    if not self.ready.done():
                        self.ready.set_result(None)
                elif self._answer is not None and not self._answer.done():
                    self._answer.set_result(said)


def _how(code: int) -> str:
    if code >= 0:
        return f"the process ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"the process died with signal {-code} ({signal.Signals(-code).name})"
    return f"the process died with signal {-code}"
