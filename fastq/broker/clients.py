"""Carrying out requests: on any thread (`SyncClient`) and on one event loop (`AsyncClient`). The two differ in the I/O alone."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, TypeVar

import hiredis
import redis

from fastq.broker.opening import Opener, check_version
from fastq.broker.requests import NOW, Request
from fastq.broker.talk import SOON, Talk
from fastq.broker.wire import AsyncWire, SyncWire, WireLost
from fastq.errors import BrokerError
from fastq_ext.resp import pack_command

T = TypeVar("T")

_UNREACHABLE = (redis.ConnectionError, redis.TimeoutError, OSError)
_HELLO = pack_command((b"TIME",)) + pack_command((b"INFO", b"server"))


class Lane:
    """A sequence of calls of which one at a time is on its way, so that the server can tell a repeat from a new call."""

    __slots__ = ("id", "number")

    def __init__(self, lane_id: bytes) -> None:
        self.id = lane_id
        self.number = 0

    def next(self) -> int:
        """The number of a new call."""
        self.number += 1
        return self.number


class Clock:
    """The server's clock, as an offset to ours that is measured at each connect. The test kit puts it forward by `shift_ms`."""

    __slots__ = ("offset_ms", "shift_ms")

    def __init__(self) -> None:
        self.offset_ms: int | None = None
        self.shift_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch on the server."""
        return time.time_ns() // 1_000_000 + (self.offset_ms or 0) + self.shift_ms

    def stamp(self, request: Request[T]) -> Request[T]:
        """The request as it is sent: with the time, if the server's own would be another."""
        if not self.shift_ms or request.script is None:
            return request
        now_ms = self.now_ms()
        return replace(request, args=tuple(now_ms if arg is NOW else arg for arg in request.args), packed=b"")

    def greet(self, answers: list[Any], sent_ns: int) -> None:
        """Read the answers to the greeting of a new connection. Raises BrokerError for a server that is too old."""
        seconds, info = answers
        for answer in answers:
            if isinstance(answer, hiredis.ReplyError) and not str(answer).startswith("LOADING"):
                raise redis.ResponseError(str(answer))
        if isinstance(info, bytes) and (problem := check_version(info)):
            raise BrokerError(problem)
        if isinstance(seconds, list):
            server_ns = int(seconds[0]) * 1_000_000_000 + int(seconds[1]) * 1000
            self.offset_ms = round((server_ns - (sent_ns + time.time_ns()) / 2) / 1_000_000)


class _Seat:
    """A connection of the sync pool and its lane; the lane outlives the connection."""

    __slots__ = ("lane", "wire")

    def __init__(self, lane: Lane) -> None:
        self.wire: SyncWire | None = None
        self.lane = lane

    def drop(self) -> None:
        if self.wire is not None:
            self.wire.close()
            self.wire = None


def _numbered(request: Request[Any], seat: _Seat) -> tuple[bytes, int]:
    """Lane and number of a call, if it has any."""
    if not request.laned:
        return b"", 0
    return request.lane or (seat.lane.id, seat.lane.next())


class Pending(Generic[T]):
    """A call that was sent and whose reply is still to be read."""

    def __init__(self, client: "SyncClient", seat: _Seat, request: Request[T], talk: Talk[T], sent: bool) -> None:
        self._client, self._seat, self._request, self._talk, self._sent = client, seat, request, talk, sent

    def wait(self) -> T:
        """The answer. Raises what the call raises."""
        return self._client._finish(self._seat, self._request, self._talk, sent=self._sent)


class SyncClient:
    """A pool of blocking connections, one for each call that is on its way at once; safe for any number of threads."""

    def __init__(self, opener: Opener, clock: Clock, new_lane: Callable[[], Lane], timeout: float, patience: float) -> None:
        self._opener, self._clock, self._new_lane = opener, clock, new_lane
        self._timeout, self._patience = timeout, patience
        self._idle: list[_Seat] = []  # append and pop are atomic

    def call(self, request: Request[T]) -> T:
        """Carry out a request. Raises BrokerError, and what the request's `read` raises."""
        seat = self._seat(request)
        request = self._clock.stamp(request)
        reply = self._try_once(seat, request, _numbered(request, seat))
        if not isinstance(reply, Talk):
            return request.read(reply)
        talk: Talk[T] = reply
        if talk.pause:
            time.sleep(talk.pause)
        return self._finish(seat, request, talk, sent=False)

    def begin(self, request: Request[T]) -> Pending[T]:
        """Send a request and return while the server works on it. A connection that cannot be had is an error of `wait`."""
        seat = self._seat(request)
        request = self._clock.stamp(request)
        talk = self._talk(request, _numbered(request, seat))
        sent = False
        if seat.wire is not None:
            try:
                seat.wire.send(talk.data)
                sent = True
            except WireLost:
                seat.drop()
        return Pending(self, seat, request, talk, sent)

    def connect(self) -> None:
        """Make sure of a connection, and with it of the server's clock and version. Raises BrokerError."""
        self.call(Request(bool, commands=((b"PING",),)))

    def close(self) -> None:
        """Close the connections that nobody uses now."""
        while self._idle:
            self._idle.pop().drop()

    def abandon(self) -> None:
        """Forget the connections of a parent process without disturbing it."""
        idle, self._idle = self._idle, []
        for seat in idle:
            if seat.wire is not None:
                seat.wire.abandon()

    def _seat(self, request: Request[T]) -> _Seat:
        try:
            seat = self._idle.pop()
        except IndexError:
            seat = _Seat(self._new_lane())
        # The server may have closed it meanwhile (a restart, its `timeout`); a call that cannot be repeated must not be the
        # one that finds out.
        if not request.repeatable and seat.wire is not None and seat.wire.ended():
            seat.drop()
        return seat

    def _talk(self, request: Request[T], lane: tuple[bytes, int]) -> Talk[T]:
        return Talk(request, self._opener.shown, self._patience, *lane)

    def _try_once(self, seat: _Seat, request: Request[T], lane: tuple[bytes, int]) -> Any:
        """The reply, as nearly every call gets it: at once, and no error. Else the Talk of the call, which knows what became of
        this try. Raises BrokerError when there is to be no other."""
        wire = seat.wire
        if wire is None or request.commands or request.blocks:
            return self._talk(request, lane)
        lost = None
        try:
            wire.send(request.pack(*lane))
            reply = wire.read()
        except WireLost as error:
            lost = error
            seat.drop()
        except BaseException:
            seat.drop()  # a reply may still be on its way (KeyboardInterrupt): nobody must read it
            self._idle.append(seat)
            raise
        if lost is None and not isinstance(reply, hiredis.ReplyError):
            self._idle.append(seat)
            return reply
        talk = self._talk(request, lane)
        try:
            if lost is not None:
                talk.failed(lost, sent=True)
            else:
                talk.answered(reply)
        except BrokerError as error:
            self._retire(seat, request, lane, error)
            raise
        if talk.reconnect:
            seat.drop()
        return talk

    def _finish(self, seat: _Seat, request: Request[T], talk: Talk[T], *, sent: bool) -> T:
        replies = request.replies
        try:
            while True:
                try:
                    if seat.wire is None:
                        sent = False
                        seat.wire = self._open()
                    if not sent:
                        sent = True
                        seat.wire.send(talk.data)
                    if request.blocks:
                        seat.wire.wait_longer(request.blocks)
                    reply = seat.wire.read() if replies == 1 else [seat.wire.read() for _ in range(replies)]
                except (*_UNREACHABLE, WireLost) as error:
                    seat.drop()
                    talk.failed(error, sent=sent)
                else:
                    if talk.answered(reply):
                        break
                    if talk.reconnect:
                        seat.drop()
                sent = False
                if talk.pause:
                    time.sleep(talk.pause)
        except BrokerError as error:
            self._retire(seat, request, talk.lane, error)
            raise
        except BaseException:
            seat.drop()  # a reply may still be on its way (KeyboardInterrupt): nobody must read it
            self._idle.append(seat)
            raise
        if request.blocks:
            seat.wire.wait_longer(0)
        self._idle.append(seat)
        return request.read(reply)

    def _retire(self, seat: _Seat, request: Request[Any], lane: tuple[bytes, int], error: BrokerError) -> None:
        """The call has failed, and may be repeated by its caller: its lane is kept for that."""
        if request.laned:
            error.lane = lane
            seat.lane = self._new_lane()
        self._idle.append(seat)

    def _open(self) -> SyncWire:
        try:
            wire = SyncWire(self._opener, self._timeout)
            try:
                sent_ns = time.time_ns()
                wire.send(_HELLO)
                self._clock.greet([wire.read(), wire.read()], sent_ns)
            except BaseException:
                wire.close()
                raise
        except redis.RedisError as error:
            raise _unusable(error, self._opener.shown) from error
        return wire


class AsyncClient:
    """One pipelined connection on one event loop, made anew when it is lost."""

    def __init__(self, opener: Opener, clock: Clock, new_lane: Callable[[], Lane], timeout: float, patience: float) -> None:
        self._opener, self._clock, self._new_lane = opener, clock, new_lane
        self._timeout, self._patience = timeout, patience
        self._wire: AsyncWire | None = None
        self._opening = asyncio.Lock()
        self._lanes: list[Lane] = []  # those without a call on its way

    async def call(self, request: Request[T], *, patience: float | None = None) -> T:
        """Carry out a request. `patience`: seconds of trying again, instead of the client's own.

        Raises BrokerError, and what the request's `read` raises. Cancelling it cancels the wait; the call may be carried out.
        """
        lane = None
        numbered = request.lane or (b"", 0)
        if request.laned and request.lane is None:
            lane = self._lanes.pop() if self._lanes else self._new_lane()
            numbered = lane.id, lane.next()
        patience = self._patience if patience is None else patience
        talk = Talk(self._clock.stamp(request), self._opener.shown, patience, *numbered)
        try:
            reply = await self._converse(request, talk)
        except BrokerError as error:
            error.lane = numbered if request.laned else None
            raise
        # A lane whose call failed or was cancelled is not used again: that call may still arrive.
        if lane is not None:
            self._lanes.append(lane)
        return request.read(reply)

    async def _converse(self, request: Request[T], talk: Talk[T]) -> Any:
        while True:
            sent = False
            try:
                wire = await self.connect()
                sent = True
                futures = wire.send(talk.data, request.replies, patience=request.blocks)
                reply = await futures[0] if len(futures) == 1 else [await future for future in futures]
            except (*_UNREACHABLE, WireLost) as error:
                talk.failed(error, sent=sent)
            else:
                if talk.answered(reply):
                    return reply
                if talk.reconnect:
                    wire.close()
            if talk.pause:
                await asyncio.sleep(talk.pause)

    async def connect(self) -> AsyncWire:
        """The connection, made if there is none. Raises BrokerError, OSError or redis.ConnectionError."""
        wire = self._wire
        if wire is not None and not wire.lost:
            return wire
        async with self._opening:
            wire = self._wire
            if wire is not None and not wire.lost:
                return wire
            try:
                wire = await AsyncWire.open(self._opener, self._timeout)
                try:
                    sent_ns = time.time_ns()
                    answers = [await future for future in wire.send(_HELLO, 2)]
                    self._clock.greet(answers, sent_ns)
                except BaseException:
                    wire.close()
                    raise
            except redis.RedisError as error:
                raise _unusable(error, self._opener.shown) from error
            self._wire = wire
            return wire

    def close(self) -> None:
        """Close the connection; never raises."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None


def _unusable(error: redis.RedisError, shown: str) -> Exception:
    """What a failed handshake means: worth another try, or an error for the caller."""
    if isinstance(error, redis.AuthenticationError):
        return BrokerError(f"{shown} refused the connection: {error}")
    soon = redis.ConnectionError | redis.TimeoutError | redis.ReadOnlyError
    if isinstance(error, soon) or str(error).encode().startswith(SOON):
        return ConnectionError(str(error))
    return BrokerError(f"{shown} refused the connection: {error}")
