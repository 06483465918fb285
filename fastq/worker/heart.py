"""The heart: a small process that beats for its worker, and ends with it.

A worker's own interpreter can be held for many seconds, by one regular expression; then its beat must not stop. It must stop when
the worker does: when it is gone or stopped, or when its event loop has made no step for `WATCHDOG` seconds.

The worker writes lines to the heart's input: its options first (a command line, and a password in it, would be there for all
to read), then "+ <queue> <worker>" and "- <queue> <worker>" to beat in a queue or no more, ". <jobs>" for a step of the loop and
how many jobs have ended. The heart says "ready" when it has been started, "ok <time>" when every queue has taken its beat,
"fenced <queue> <worker>" when one did not know it, and "silent <why>" when a beat did not get through. The time is that before
the beat, on the monotonic clock, which both processes share: a worker that was stopped reads of it late. In a fleet its first
process is the heart of all others, with the same words; it may also say "retire".
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastq.broker import requests
from fastq.broker.broker import Broker
from fastq.config import Config
from fastq.errors import BrokerError
from fastq.keys import QueueKeys, queue_keys
from fastq.worker.handover import config_of, words_of

_log = logging.getLogger("fastq.worker")

WATCHDOG = 300.0
PAUSE = 0.5  # seconds until a heart that ended is replaced
TELLS_EVERY = 1.0  # seconds between two complaints


class Heart:
    """The worker's end: starts the process, tells it where to beat, and knows when the last beat was taken."""

    def __init__(self, config: Config) -> None:
        """Raises ConfigError when the process could not be told how to reach the server."""
        self._config = config
        self._words = words_of(config)
        self._process: asyncio.subprocess.Process | None = None
        self._names: set[tuple[str, str]] = set()
        self.last_beat = time.monotonic()  # a worker joins its queues later, and to join is to give a sign of life
        self.ready = asyncio.Event()  # a worker joins no queue before: until the first beat it would look dead
        self.on_fenced: Callable[[str, str], None] = lambda queue, worker: None
        self.on_beat: Callable[[], None] = lambda: None
        self.on_retire: Callable[[], None] = lambda: None  # a fleet has another worker in this one's place

    @property
    def well(self) -> bool:
        """Whether a beat was taken recently enough for nobody to think this worker dead."""
        return time.monotonic() < self.well_until

    @property
    def well_until(self) -> float:
        """When that ends, on the monotonic clock, unless another beat is taken."""
        return self.last_beat + 0.7 * self._config.lease

    @property
    def lease(self) -> float:
        """Seconds without a beat after which others may take this worker for dead."""
        return self._config.lease

    def join(self, queue: str, worker: str) -> None:
        """Beat in this queue too."""
        self._names.add((queue, worker))
        self._write(f"+ {queue} {worker}")

    def leave(self, queue: str, worker: str) -> None:
        """Beat there no more."""
        self._names.discard((queue, worker))
        self._write(f"- {queue} {worker}")

    def step(self, finished: int) -> None:
        """The event loop is alive, and so many jobs have ended here."""
        self._write(f". {finished}")

    async def run(self) -> None:
        """Keep a heart process until cancelled; one that ends is replaced."""
        while True:
            starting = asyncio.ensure_future(self._start())
            try:
                await asyncio.shield(starting)
                await self._listen()
            finally:
                # Cancelled while the process was being started, it would be left behind half made.
                await asyncio.wait([starting])
                code = await self._end()
            _log.error("the heart process ended with code %s: another one starts", code)
            await asyncio.sleep(PAUSE)

    async def _start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "fastq.worker.heart",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self._introduce(pid=os.getpid())

    def _introduce(self, **more: Any) -> None:
        """Tell a heart that has just come all that it has to know."""
        self._write(json.dumps({**self._words, **more}))
        for queue, worker in self._names:
            self._write(f"+ {queue} {worker}")

    async def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._hear(line)

    def _hear(self, line: bytes) -> None:
        what, *rest = line.decode().split()
        if what == "ok":
            self.last_beat = float(rest[0])
            self.on_beat()
        elif what == "ready":
            self.ready.set()
        elif what == "silent":
            _log.warning("heart: a beat did not get through: %s", " ".join(rest))
        elif what == "fenced":
            self.on_fenced(*rest)
        elif what == "retire":
            self.on_retire()

    async def _end(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()  # also waits for its pipes, which the event loop could not close after itself
        return process.returncode

    def _write(self, line: str) -> None:
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(line.encode() + b"\n")


# --- the process


class _Beats:
    """The heart's end."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._worker_pid = options["pid"]
        config = config_of(options)
        # A connection that died unheard has to be noticed, and replaced, well within the lease.
        self._client = Broker(config).new_sync_client(timeout=config.lease / 3, patience=config.lease / 3)
        self._namespace = config.namespace
        self._period = min(1.0, config.lease / 5)
        self._names: dict[str, list[str]] = {}
        self._stepped = time.monotonic()
        self._told = 0.0  # when it last complained
        self._rest = b""

    def run(self) -> None:
        """Beat until the worker has gone."""
        os.write(1, b"ready\n")
        due = time.monotonic()
        while True:
            ready, _, _ = select.select([0], [], [], max(0.0, due - time.monotonic()))
            if ready and not self._hear(os.read(0, 65536)):
                return
            if time.monotonic() >= due:
                due = time.monotonic() + self._period
                if os.getppid() != self._worker_pid:
                    return
                if not stopped(self._worker_pid) and time.monotonic() - self._stepped < WATCHDOG:
                    self._beat()

    def _hear(self, data: bytes) -> bool:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            words = line.decode().split()
            self._stepped = time.monotonic()
            if words[0] == "+":
                self._names.setdefault(words[1], []).append(words[2])
                self._beat()
            elif words[0] == "-" and words[2] in self._names.get(words[1], []):
                self._names[words[1]].remove(words[2])
        return bool(data)

    def _beat(self) -> None:
        answers = []
        began = time.monotonic()
        for queue, workers in self._names.items():
            if not workers:
                continue
            try:
                known = self._client.call(requests.beat(self._keys(queue), [name.encode() for name in workers]))
            except BrokerError as error:
                self._complain(error)
                return  # the worker hears no "ok"; it knows what that means
            fenced = [name for name, alive in zip(workers, known, strict=True) if not alive]
            answers += [f"fenced {queue} {name}\n" for name in fenced]
            self._names[queue] = [name for name in workers if name not in fenced]
        os.write(1, "".join([*answers, f"ok {began}\n"]).encode())

    def _complain(self, error: BrokerError) -> None:
        now = time.monotonic()
        if now - self._told > TELLS_EVERY:
            self._told = now
            os.write(1, f"silent {' '.join(str(error).split())}\n".encode())

    def _keys(self, queue: str) -> QueueKeys:
        return queue_keys(self._namespace, queue)


def stopped(pid: int) -> bool:
    """Whether a process was stopped (SIGSTOP) or is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False  # no /proc here: whether it exists at all is seen by the end of our input
    return stat.rpartition(") ")[2][:1] in ("T", "t", "Z")


def main() -> None:
    """`python -m fastq.worker.heart`, with the options in its input's first line."""
    # The terminal's signals are for the worker, which ends this process by closing its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(BrokenPipeError):
        if line := _first_line():
            _Beats(json.loads(line)).run()


def _first_line() -> bytes:
    """The first line of the input; b"" if it ends before. Reads no byte of the second."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return b""
        line += byte
    return line


if __name__ == "__main__":
    main()
