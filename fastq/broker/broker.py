"""The broker of one FastQ: its clients, one set per process, and one per event loop for async callers."""

import asyncio
import os
import weakref
from collections.abc import Generator
from typing import Any, TypeVar, cast

from fastq.broker.clients import AsyncClient, Clock, Lane, Pending, SyncClient
from fastq.broker.opening import Opener
from fastq.broker.requests import Request
from fastq.config import Config
from fastq.errors import BrokerError

T = TypeVar("T")

CALL_TIMEOUT = 15.0  # seconds without a reply after which a connection counts as dead
PATIENCE = 5.0  # seconds that a producer's call is tried again


class Broker:
    """Speaks to Redis for one FastQ, from any thread, event loop or forked child. Connects at first use.

    `opener` and `clock` serve the worker, which makes clients of its own.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.opener = Opener(config)
        self.clock = Clock()
        self._sync = self.new_sync_client()
        self._async: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient] = weakref.WeakKeyDictionary()
        self._waiting: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, list[AsyncClient]] = weakref.WeakKeyDictionary()
        _ALL.add(self)

    def call(self, request: Request[T]) -> T:
        """Carry out a request. Raises BrokerError, and what the request reads."""
        return self._sync.call(request)

    def begin(self, request: Request[T]) -> Pending[T]:
        """Send a request; its `wait()` reads the answer later."""
        return self._sync.begin(request)

    async def acall(self, request: Request[T]) -> T:
        """`call` for async code, on this event loop's connection; a request that blocks has one of its own meanwhile."""
        if not request.blocks:
            return await self._loop_client().call(request)
        waiting = self._waiting.setdefault(asyncio.get_running_loop(), [])
        client = waiting.pop() if waiting else self.new_client()
        try:
            reply = await client.call(request)
        except BaseException:
            client.close()  # it may still block
            raise
        waiting.append(client)
        return reply

    def run(self, steps: Generator[Request[Any], Any, T]) -> T:
        """Carry out the requests that `steps` yields, each with the answer to the one before, and return what it returns.

        A BrokerError is raised in `steps`, which may go on.
        """
        try:
            request = next(steps)
            while True:
                try:
                    answer = self.call(request)
                except BrokerError as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as end:
            return cast(T, end.value)

    async def arun(self, steps: Generator[Request[Any], Any, T]) -> T:
        """`run` for async code."""
        try:
            request = next(steps)
            while True:
                try:
                    answer = await self.acall(request)
                except BrokerError as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as end:
            return cast(T, end.value)

    def now_ms(self) -> int:
        """The server's clock. Connects if nobody has; raises BrokerError."""
        if self.clock.offset_ms is None:
            self._sync.connect()
        return self.clock.now_ms()

    async def anow_ms(self) -> int:
        """The server's clock. Connects if nobody has; raises BrokerError."""
        if self.clock.offset_ms is None:
            await self.acall(Request(bool, commands=((b"PING",),)))
        return self.clock.now_ms()

    def close(self) -> None:
        """Close this process's connections that are not in use; the next call opens new ones."""
        self._sync.close()
        if not self._async:
            self.opener.close()

    async def aclose(self) -> None:
        """Close this event loop's connection, and the blocking ones."""
        loop = asyncio.get_running_loop()
        client = self._async.pop(loop, None)
        for one in (*self._waiting.pop(loop, ()), *([client] if client is not None else ())):
            one.close()
        self.close()

    def new_lane(self) -> Lane:
        """A lane that no other client, process or host has."""
        return Lane(os.urandom(12).hex().encode())

    def new_client(self, timeout: float = CALL_TIMEOUT, patience: float = PATIENCE) -> AsyncClient:
        """A connection of its own for the running event loop."""
        return AsyncClient(self.opener, self.clock, self.new_lane, timeout, patience)

    def new_sync_client(self, timeout: float = CALL_TIMEOUT, patience: float = PATIENCE) -> SyncClient:
        """A pool of blocking connections of its own."""
        return SyncClient(self.opener, self.clock, self.new_lane, timeout, patience)

    def _loop_client(self) -> AsyncClient:
        loop = asyncio.get_running_loop()
        client = self._async.get(loop)
        if client is None:
            self._forget_closed_loops()
            client = self._async[loop] = self.new_client()
        return client

    def _forget_closed_loops(self) -> None:
        # A client holds its loop, so these entries do not go by themselves: one asyncio.run() after the other would leave
        # a connection each.
        for clients in (self._async, self._waiting):
            for ref in clients.keyrefs():
                if (loop := ref()) is not None and loop.is_closed():
                    clients.pop(loop, None)

    def _after_fork(self) -> None:
        # The parent goes on using its sockets: the child lets go of them and connects anew.
        self._sync.abandon()
        self._sync = self.new_sync_client()
        # Kept from being collected: closing them would disturb the parent's event loop.
        _INHERITED.append((self._async, self._waiting))
        self._async, self._waiting = weakref.WeakKeyDictionary(), weakref.WeakKeyDictionary()


_INHERITED: list[object] = []
_ALL: "weakref.WeakSet[Broker]" = weakref.WeakSet()


def _forget_connections() -> None:
    for broker in list(_ALL):
        broker._after_fork()


os.register_at_fork(after_in_child=_forget_connections)
