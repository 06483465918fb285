"""The test kit: a program's jobs on a private server, run in the test's own process, by a clock that the test moves.

    def test_welcome():
        with app.testing() as t:
            signup("ada@example.com")
            assert [job.task for job in t.jobs("waiting")] == ["send_welcome"]
            t.run()
            assert t.outcomes[0].state == "succeeded"
            t.advance(3600)

docs/testing.md says more; `fastq/pytest_plugin.py` has the fixture.
"""
from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from fastq.broker import inspection, requests
from fastq.broker.broker import Broker
from fastq.broker.requests import Request
from fastq.codec import Frame, Message
from fastq.config import DEFAULT_QUEUE, check_seconds
from fastq.dead import read_arguments
from fastq.embedded import EmbeddedServer, open_embedded
from fastq.job import uid_string
from fastq.keys import queue_keys
from fastq.worker.rehearsal import Rehearsal, Turn

if TYPE_CHECKING:
    from fastq.app import FastQ

T = TypeVar("T")
State = Literal["waiting", "scheduled", "retrying", "dead"]

LEASE = 86_400.0  # nobody is to be taken for dead, be it in a debugger
_MOVED_AT_ONCE = 1000
_server: EmbeddedServer | None = None


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job as it stands in its queue. `args` and `kwargs` are as its task would get them; `due_at` is None at once."""

    uid: str
    task: str
    queue: str
    state: State
    args: tuple[Any, ...] | None
    kwargs: dict[str, Any] | None
    job_id: str | None
    key: str | None
    attempt: int
    due_at: datetime | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one attempt of a job ended, or the job without one.

    `state` is what the job was then: succeeded, retrying, dead, dropped, cancelled or expired. `result` is what the
    function returned, `error` what it raised.
    """

    uid: str
    task: str
    queue: str
    state: str
    attempt: int
    args: tuple[Any, ...] | None
    kwargs: dict[str, Any] | None
    result: Any = None
    error: BaseException | None = field(default=None)


class Testing:
    """What `app.testing()` returns: a context, sync and async, in which the program lives in a place of its own.

    All that is enqueued, by the test or by jobs, goes to a namespace that only this test has, on a private server that
    the tests of this process share. Locks and ids hold as they do in earnest, and every call is checked against the
    annotations. Afterwards the program is as before. `outcomes` are those of all jobs that were run so far.
    """

    __test__ = False  # it is no test, whatever pytest thinks of its name

    def __init__(self, app: FastQ, url: str | None = None) -> None:
        self._app = app
        self._url = url
        self._home = app.config, app.broker
        self._broker: _TestBroker | None = None
        self.outcomes: list[Outcome] = []

    def __enter__(self) -> Self:
        app = self._app
        if isinstance(app.broker, _TestBroker):
            raise RuntimeError("this FastQ is under test already: leave the one app.testing() before the next")
        self._home = app.config, app.broker
        config = replace(
            app.config,
            url=self._url or _private_server().url,
            namespace=f"test-{uuid.uuid4().hex[:12]}",
            lease=LEASE,
            validate=True,
            redis_options=app.config.redis_options if self._url else {},
        )
        self._broker = _TestBroker(config)
        self.outcomes = []
        app.move(config, self._broker)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        broker, self._broker = self._place(), None
        self._app.move(*self._home)
        for names in _key_names(broker):
            broker.call(inspection.delete_keys(names))
        broker.close()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    @property
    def now(self) -> datetime:
        """The time, as the queues have it."""
        return _time(self._place().now_ms())

    def jobs(self, state: State) -> list[QueuedJob]:
        """The jobs that are waiting, scheduled, retrying or dead, of all queues, those that are due first first."""
        if state not in ("waiting", "scheduled", "retrying", "dead"):
            raise ValueError(f"{state!r}: jobs that stand in a queue are waiting, scheduled, retrying or dead; see .outcomes")
        return [job for job in self._standing() if job.state == state]

    def run(self, *, concurrency: int = 1) -> None:
        """Run what waits, and what that enqueues, until nothing is due; `outcomes` tells what came of it.

        One job after the other, unless `concurrency` says otherwise; sync ones in a thread. Jobs that are not due yet
        stay: see `advance`. What a job raises is not raised here.
        """
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("run() starts an event loop of its own: in async code it is `await t.arun()`")
        asyncio.run(self.arun(concurrency=concurrency))

    async def arun(self, *, concurrency: int = 1) -> None:
        """`run()` for async code."""
        served: list[str] = []
        while (queues := self._queues()) != served:  # a job may be the first one of its queue
            served = queues
            await Rehearsal(self._app, self._note, queues=queues, concurrency=concurrency).arun()

    def advance(self, seconds: float | timedelta) -> None:
        """Move the clock: what falls due waits from then on, and locks, ids, results and records grow older."""
        broker = self._place()
        ms = round(check_seconds("seconds", seconds) * 1000)
        broker.now_ms()  # the shift counts from the server's clock
        broker.clock.shift_ms += ms
        for names in _key_names(broker):
            left: list[int] = broker.call(inspection.ttls(names))
            if ends := [(name, ttl - ms) for name, ttl in zip(names, left, strict=True) if ttl >= 0]:
                broker.call(inspection.expire(ends))
        for queue in self._queues():
            self._promote(queue)

    # ---

    def _place(self) -> _TestBroker:
        if self._broker is None:
            raise RuntimeError("not under test: use it within `with app.testing() as t:`")
        return self._broker

    def _queues(self) -> list[str]:
        broker = self._place()
        found = broker.call(inspection.queues(broker.config.namespace))
        return sorted({*found, *(task.queue for task in self._app.tasks.values()), DEFAULT_QUEUE})

    def _promote(self, queue: str) -> None:
        broker, me = self._place(), b"clock"
        keys = queue_keys(broker.config.namespace, queue)
        bounds = broker.config.max_dead
        broker.call(requests.join(keys, me))
        more = True
        while more:
            tick = requests.tick(
                keys,
                me,
                lease_ms=round(LEASE * 1000),
                limit=200,
                max_crashes=broker.config.max_crashes,
                dead_jobs=bounds.jobs,
                dead_bytes=bounds.size,
                dead_ms=round(bounds.age * 1000),
            )
            more = broker.call(tick).more
        broker.call(requests.leave(keys, me, died=False))

    def _standing(self) -> Iterator[QueuedJob]:
        broker = self._place()
        for queue in self._queues():
            found = broker.call(inspection.messages(queue_keys(broker.config.namespace, queue)))
            for data in found.frames:
                frame = Frame(data)
                for place in range(len(frame)):
                    yield self._shown(queue, frame[place], "waiting", None)
            for raw, due in found.scheduled:
                message = Message(raw)
                yield self._shown(queue, message, "retrying" if message.attempt > 1 else "scheduled", _time(due))
            for raw, _ in found.dead:
                yield self._shown(queue, Message(raw), "dead", None)

    def _shown(self, queue: str, message: Message, state: State, due: datetime | None) -> QueuedJob:
        args, kwargs = self._arguments(message)
        key = message.lock_key.partition(b":")[2].decode() if message.lock_key else None
        return QueuedJob(
            uid_string(message.uid), message.task, queue, state, args, kwargs, message.job_id or None, key, message.attempt, due
        )

    def _note(self, turn: Turn) -> None:
        message = turn.message
        args, kwargs = self._arguments(message)
        uid, attempt = uid_string(message.uid), message.attempt
        self.outcomes.append(
            Outcome(uid, message.task, turn.queue, turn.state, attempt, args, kwargs, turn.value, turn.error)
        )

    def _arguments(self, message: Message) -> tuple[tuple[Any, ...] | None, dict[str, Any] | None]:
        task = self._app.tasks.get(message.task)
        return read_arguments(message, task.decoder if task is not None else None)


class _TestBroker(Broker):
    """Async calls go by the sync connection too: no test's event loop is left with an open one."""

    async def acall(self, request: Request[T]) -> T:
        if not request.blocks:
            return self.call(request)
        client = self.new_client()
        try:
            return await client.call(request)
        finally:
            client.close()


def _private_server() -> EmbeddedServer:
    global _server
    if _server is None:
        _server = open_embedded("embedded://")
    return _server


def stop_server() -> None:
    """Stop the private server before the process ends; the next test starts another one."""
    global _server
    if _server is not None:
        _server.close()
        _server = None


def _key_names(broker: Broker) -> Iterator[list[bytes]]:
    cursor = -1
    while cursor:
        cursor, names = broker.call(inspection.some_keys(broker.config.namespace, max(cursor, 0)))
        for at in range(0, len(names), _MOVED_AT_ONCE):
            yield names[at : at + _MOVED_AT_ONCE]


def _time(ms: float) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
