"""The template: a process that has imported the program and is forked into children, which share its memory until they write.

It runs nothing and connects to nothing. It is told "<token>" together with the channel of a child (a file descriptor that comes
with the message), and says "forked <pid>" and "ended <pid> <code>". It ends when its own channel does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
from collections.abc import Mapping, Sequence

LOOK_EVERY = 0.05  # seconds between two looks at an orphan


class TemplateLost(Exception):
    """The template has ended, or never came to life."""


class Forked:
    """A child of the template."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def send_signal(self, signal: int, /) -> None:
        """Send a signal. Raises ProcessLookupError when it has ended."""
        if self.ended.done():
            raise ProcessLookupError(self.pid)
        os.kill(self.pid, signal)

    async def wait(self) -> int:
        """Its exit code, as its parent tells it; that of an orphan is not known, so -9."""
        try:
            return await asyncio.shield(self.ended)
        except TemplateLost:
            with contextlib.suppress(ProcessLookupError):
                while True:
                    os.kill(self.pid, 0)
                    await asyncio.sleep(LOOK_EVERY)
            return -signal.SIGKILL


class Template:
    """The fleet's end. `command` starts the process; `--template FD` is appended."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: int | None) -> None:
        self._command, self._env, self._log = command, env, log
        self._starting = asyncio.Lock()
        self._channel: socket.socket | None = None
        self._forked: dict[int, Forked] = {}
        self._answer: asyncio.Future[int] | None = None
        self._live: asyncio.Task[None] | None = None
        self._retired = False
        self.pid: int | None = None

    async def launch(self, channel: socket.socket, token: str) -> Forked:
        """Fork a child. Raises TemplateLost when the program cannot be imported."""
        async with self._starting:  # one at a time: the answers carry no name
            if self._channel is None:
                await self._start()
            assert self._channel is not None
            self._answer = asyncio.get_running_loop().create_future()
            try:
                socket.send_fds(self._channel, [f"{token}\n".encode()], [channel.fileno()])
            except OSError as error:
                raise TemplateLost from error
            return self._forked[await self._answer]

    def retire(self) -> None:
        """Let it end when its children have."""
        self._retired = True
        self._close_if_done()

    async def close(self) -> None:
        """End it; children that are left are orphans."""
        self._end()
        if self._live is not None:
            await self._live

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                *("--template", str(theirs.fileno())),
                pass_fds=(theirs.fileno(),),
                env=self._env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                process_group=0,
            )
        self.pid = process.pid
        self._channel = ours
        reader, writer = await asyncio.open_unix_connection(sock=ours.dup())
        self._live = asyncio.create_task(self._listen(process, reader, writer), name="fastq-template")

    async def _listen(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(ConnectionError):
            async for line in reader:
                what, pid, *rest = line.decode().split()
                if what == "forked":
                    self._forked[int(pid)] = Forked(int(pid))
                    if self._answer is not None and not self._answer.done():
                        self._answer.set_result(int(pid))
                else:
                    self._forked.pop(int(pid)).ended.set_result(int(rest[0]))
                    self._close_if_done()
        writer.close()
        if self._channel is not None:
            self._channel.close()
        await process.wait()
        self._channel = None
        lost, self._forked = self._forked, {}
        for waiting in (self._answer, *(forked.ended for forked in lost.values())):
            if waiting is not None and not waiting.done():
                waiting.set_exception(TemplateLost())
                waiting.exception()  # whether or not anybody asks

    def _close_if_done(self) -> None:
        if self._retired and not self._forked:
            self._end()

    def _end(self) -> None:
        if self._channel is not None:
            with contextlib.suppress(OSError):
                self._channel.shutdown(socket.SHUT_RDWR)


# --- the process


def serve(fd: int) -> str | None:
    """Fork children until the fleet is gone. Returns twice: in each child what it was told (`Lifeline`), None in the template."""
    fleet = socket.socket(fileno=fd)
    os.set_inheritable(fd, False)
    woken, wake = socket.socketpair()
    for end in (woken, wake):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([fleet, woken], [], [])
        if woken in ready:
            woken.recv(4096)
            _tell_ends(fleet)
        if fleet in ready:
            data, channels, _, _ = socket.recv_fds(fleet, 1024, 1)
            if not data:
                return None
            if pid := os.fork():
                os.close(channels[0])
                with contextlib.suppress(ConnectionError):
                    fleet.sendall(f"forked {pid}\n".encode())
                continue
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for inherited in (fleet, woken, wake):
                inherited.close()
            os.setpgrp()  # a group of its own, as the others have
            return f"{channels[0]}:{data.decode().strip()}"


def _tell_ends(fleet: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError, ConnectionError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            fleet.sendall(f"ended {pid} {os.waitstatus_to_exitcode(status)}\n".encode())
