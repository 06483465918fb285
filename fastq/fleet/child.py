"""A child: a worker process as its fleet sees it, and what it tells over its channel (fastq/worker/heart.py has the words)."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

LAST_WORDS = 0.2  # seconds in which what a dead child had said is read; a process that it left may hold the channel open


class Process(Protocol):
    """What there is to do with a process that was started."""

    @property
    def pid(self) -> int: ...
    def send_signal(self, signal: int, /) -> None: ...
    async def wait(self) -> int:
        """Its exit code; negative: the signal that ended it."""


Launch = Callable[[socket.socket, str], Awaitable[Process]]


class Child:
    """One worker process; `await Child.start(launch)` makes it. `on_word` is called when it has joined a queue."""

    def __init__(self, process: Process, token: str, on_word: Callable[[], None]) -> None:
        self._process = process
        self._on_word = on_word
        self._life: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.pid = process.pid
        self.token = token
        self.begun = time.monotonic()
        self.told: str | None = None  # where its queues are (beats.py), as soon as it has said so
        self.names: set[tuple[str, str]] = set()  # (queue, its name there), for as long as it has not left it
        self.finished = 0  # jobs that have ended there
        self.stepped: float | None = None  # when its event loop made a step; None: it does not serve yet
        self.serves = asyncio.Event()
        self.ended = asyncio.Event()
        self.code = 0  # its exit code, when it has ended

    @classmethod
    async def start(cls, launch: Launch, on_word: Callable[[], None]) -> Child:
        """Start a worker process with a channel to it."""
        ours, theirs = socket.socketpair()
        token = secrets.token_hex(4)
        try:
            with theirs:
                process = await launch(theirs, token)
        except BaseException:
            ours.close()
            raise
        child = cls(process, token, on_word)
        reader, child._writer = await asyncio.open_unix_connection(sock=ours)
        child._life = asyncio.create_task(child._live(reader), name=f"fastq-child-{child.pid}")
        return child

    def send(self, signum: int) -> None:
        """Send a signal, if it has not ended."""
        if not self.ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signum)

    def kill(self) -> None:
        """End it by force."""
        self.send(signal.SIGKILL)

    def tell(self, line: str) -> None:
        """Write a line into the channel."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(line.encode() + b"\n")

    def retire(self) -> None:
        """Let it end when its jobs have, however long they take."""
        self.tell("retire")

    async def _live(self, reader: asyncio.StreamReader) -> None:
        listening = asyncio.create_task(self._listen(reader))
        self.code = await self._process.wait()
        await asyncio.wait([listening], timeout=LAST_WORDS)
        listening.cancel()
        if self._writer is not None:
            self._writer.close()
        self.ended.set()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            async for line in reader:
                self._hear(line.decode().rstrip("\n"))

    def _hear(self, line: str) -> None:
        if self.told is None:
            self.told = line
            self.tell("ready")
            return
        what, *rest = line.split()
        if what == ".":
            self.finished = int(rest[0])
            self.stepped = time.monotonic()
            self.serves.set()
        elif what == "+":
            self.names.add((rest[0], rest[1]))
            self._on_word()
        elif what == "-":
            self.names.discard((rest[0], rest[1]))
