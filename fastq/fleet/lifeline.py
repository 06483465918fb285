"""The child's end: the channel to its fleet, which beats for it, and a watch over the fleet's life."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import signal
import socket
import threading
import time

from fastq.config import Config
from fastq.worker.heart import Heart

_log = logging.getLogger("fastq.fleet")

MARGIN = 10.0  # seconds beyond the grace time until a child that does not end is killed


class Lifeline:
    """What a child was told by its fleet: the channel, and a token that is in its names in the queues and in no other's."""

    def __init__(self, told: str) -> None:
        """`told`: FD:TOKEN. Raises ValueError for anything else."""
        fd, _, self.token = told.partition(":")
        self._fd = int(fd)
        os.set_inheritable(self._fd, False)

    def channel(self) -> socket.socket:
        """The channel, for the caller to close."""
        return socket.socket(fileno=os.dup(self._fd))

    def watch(self, grace: float) -> None:
        """End this process in good order when the fleet is gone, and by force if that takes too long."""
        threading.Thread(target=self._watch, args=(grace,), name="fastq-lifeline", daemon=True).start()

    def _watch(self, grace: float) -> None:
        poll = select.poll()
        poll.register(self._fd, 0)  # nothing but its end, which is always told; the event loop reads what comes before
        poll.poll()
        _log.error("the fleet is gone: this worker ends")
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace + MARGIN)
        os._exit(1)


class FleetHeart(Heart):
    """Has the fleet beat for this worker, and a process of its own as soon as the fleet is gone."""

    def __init__(self, config: Config, lifeline: Lifeline) -> None:
        super().__init__(config)
        self._lifeline = lifeline
        self._fleet: asyncio.StreamWriter | None = None

    async def run(self) -> None:
        """Keep a heart until cancelled."""
        reader, self._fleet = await asyncio.open_unix_connection(sock=self._lifeline.channel())
        try:
            self._introduce()
            with contextlib.suppress(ConnectionError):
                async for line in reader:
                    self._hear(line)
        finally:
            fleet, self._fleet = self._fleet, None
            fleet.close()
        await super().run()

    def _write(self, line: str) -> None:
        if self._fleet is None:
            super()._write(line)
        elif not self._fleet.is_closing():
            self._fleet.write(line.encode() + b"\n")
