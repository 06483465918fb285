"""Redis connections as fastq speaks on them: packed commands out, parsed replies in, in order.

`SyncWire` blocks its thread. `AsyncWire` is pipelined: any number of calls are on their way at once, replies are handed out in
the order of the calls, and a caller that is cancelled leaves its place in that order behind, so that nobody gets another's reply.
"""

import asyncio
import contextlib
import os
import select
import socket
import struct
import time
from collections import deque
from typing import Any

import hiredis

from fastq.broker import opening
from fastq_ext.exchange import Exchange

_READ_BYTES = 1 << 16


class WireLost(ConnectionError):
    """The connection is gone, or its server has been silent for too long."""


class SyncWire:
    """One connection, used by one thread at a time."""

    def __init__(self, opener: opening.Opener, timeout: float) -> None:
        self._connection = opener.open()  # kept: its disconnect() ends TLS and the socket properly
        self._socket = opening.socket_of(self._connection)
        self._timeout = timeout
        # TLS is Python's; so are sockets that belong to an event loop of their own (gevent).
        self._plain = os.name == "posix" and type(self._socket) is socket.socket and socket.socket.__module__ == "socket"
        self._exchange = Exchange(self._socket.fileno()) if self._plain else _Through(self._socket)
        self._reader: Any = hiredis.Reader(notEnoughData=_NOTHING)
        self.wait_longer(0)

    def send(self, data: bytes) -> None:
        """Send packed commands. Raises WireLost."""
        try:
            self._exchange.send(data)
        except OSError as error:
            raise WireLost(f"the connection broke while sending: {error}") from error

    def ended(self) -> bool:
        """Whether the server has closed the connection. For one without a call on its way."""
        return self._exchange.ended()

    def wait_longer(self, seconds: float) -> None:
        """Let the server block for so long before its silence counts; 0: not at all."""
        seconds += self._timeout
        if not self._plain:
            self._socket.settimeout(seconds)
            return
        # Python would wait with poll() before each call of a socket that has a timeout; the kernel's own costs nothing.
        self._socket.settimeout(None)
        limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def read(self) -> Any:
        """The next reply; an error of the server is returned as a `hiredis.ReplyError`. Raises WireLost."""
        reader = self._reader
        try:
            while (reply := reader.gets()) is _NOTHING:
                reader.feed(self._received())
        except hiredis.ProtocolError as error:
            raise WireLost(f"the server's answer cannot be read: {error}") from error
        return reply

    def _received(self) -> bytes:
        try:
            data = self._exchange.receive()
        except (TimeoutError, BlockingIOError) as error:
            raise WireLost("the server did not answer in time") from error
        except OSError as error:
            raise WireLost(f"the connection broke: {error}") from error
        if not data:
            raise WireLost("the server closed the connection")
        return data

    def close(self) -> None:
        """Close the connection; never raises."""
        self._connection.disconnect()

    def abandon(self) -> None:
        """Let go of a connection inherited from a parent process, which goes on using it."""
        with contextlib.suppress(OSError):
            socket.close(self._socket.detach())


class _Through:
    """An `Exchange` by way of a Python socket."""

    def __init__(self, connected: Any) -> None:
        self._socket = connected
        self._poll = select.poll()
        self._poll.register(connected, select.POLLIN)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes:
        data: bytes = self._socket.recv(_READ_BYTES)
        return data

    def ended(self) -> bool:
        return bool(self._poll.poll(0))


_NOTHING = object()


class AsyncWire(asyncio.Protocol):
    """One pipelined connection of one event loop."""

    def __init__(self, timeout: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        # What is on its way: the future of each reply, and by when it has to be there.
        self._waiting: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._lost: Exception | None = None
        self._transport: Any = None
        self._kept: Any = None
        self._watch: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, opener: opening.Opener, timeout: float) -> "AsyncWire":
        """Connect. Raises redis.RedisError or OSError."""
        wire = cls(timeout)
        wire._kept, wire._transport = opening.take_over(await opener.aopen())
        wire._transport.set_protocol(wire)
        # A reader that filled up may have stopped the transport; ours never does.
        if not wire._transport.is_reading():
            wire._transport.resume_reading()
        return wire

    @property
    def lost(self) -> bool:
        """Whether the connection is gone."""
        return self._lost is not None or self._transport.is_closing()

    def send(self, data: bytes, replies: int = 1, *, patience: float = 0.0) -> list[asyncio.Future[Any]]:
        """Send packed commands and return the futures of their replies. `patience`: seconds that the server may block.

        The futures raise WireLost; an error of the server is a result, a `hiredis.ReplyError`.
        """
        if self._lost is not None:
            raise self._lost
        until = time.monotonic() + self._timeout + patience
        futures = [self._loop.create_future() for _ in range(replies)]
        self._waiting.extend((future, until) for future in futures)
        self._transport.write(data)
        if self._watch is None:
            self._watch = self._loop.call_later(self._timeout / 4, self._look)
        return futures

    def data_received(self, data: bytes) -> None:
        reader, waiting = self._reader, self._waiting
        reader.feed(data)
        while waiting:
            try:
                reply = reader.gets()
            except hiredis.ProtocolError as error:
                self._lose(WireLost(f"the server's answer cannot be read: {error}"))
                return
            if reply is _NOTHING:
                return
            future, _ = waiting.popleft()
            if not future.done():
                future.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(WireLost(f"the connection broke: {exc}" if exc else "the server closed the connection"))

    def eof_received(self) -> bool:
        return False

    def close(self) -> None:
        """Close the connection; callers that still wait get WireLost. Never raises."""
        self._lose(WireLost("the connection was closed"))

    def _look(self) -> None:
        self._watch = None
        if self._lost is not None or not self._waiting:
            return
        if self._waiting[0][1] < time.monotonic():
            self._lose(WireLost("the server did not answer in time"))
        else:
            self._watch = self._loop.call_later(self._timeout / 4, self._look)

    def _lose(self, error: WireLost) -> None:
        if self._lost is not None:
            return
        self._lost = error
        if self._watch is not None:
            self._watch.cancel()
        if self._transport is not None:
            self._transport.abort()
        while self._waiting:
            future, _ = self._waiting.popleft()
            if not future.done():
                future.set_exception(WireLost(*error.args))
                future.exception()  # nobody may be waiting any more; that is no reason for a warning
