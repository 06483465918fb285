"""The way of a job without a queue: what two sockets and the server alone take of its latency. Each is a child."""

from __future__ import annotations

import os
import socket
import time
from typing import Any
from urllib.parse import urlsplit

import hiredis

from bench.pace import pace

STREAM, GROUP = "bench:{bare}:stream", "bare"


class Line:
    """A connection on which one command at a time is on its way."""

    def __init__(self) -> None:
        where = urlsplit(os.environ["FASTQ_URL"])
        self._socket = socket.create_connection((where.hostname, where.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()

    def call(self, *command: str | int) -> Any:
        """The answer to a command. Raises hiredis.ReplyError."""
        self._socket.sendall(hiredis.pack_command(command))  # type: ignore[arg-type]  # its stub knows tuples of one only
        while (answer := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(65_536))
        if isinstance(answer, hiredis.ReplyError):
            raise answer
        return answer


def produce(jobs: int, per_second: float) -> None:
    """Add the time to a stream at a steady pace, by a script, once somebody reads it."""
    line = Line()
    sha = line.call("SCRIPT", "LOAD", "return redis.call('XADD', KEYS[1], '*', 'f', ARGV[1])").decode()
    while not line.call("EXISTS", STREAM):
        time.sleep(0.01)
    for _ in pace(jobs, per_second):
        line.call("EVALSHA", sha, 1, STREAM, repr(time.monotonic()))


def receive(jobs: int) -> list[float]:
    """Seconds that each took to come here, sorted."""
    line = Line()
    delays: list[float] = []
    line.call("XGROUP", "CREATE", STREAM, GROUP, "0", "MKSTREAM")
    while len(delays) < jobs:
        [[_, entries]] = line.call("XREADGROUP", "GROUP", GROUP, "w", "COUNT", 100, "BLOCK", 0, "STREAMS", STREAM, ">")
        now = time.monotonic()
        delays += [now - float(fields[1]) for _, fields in entries]
    return sorted(delays)
