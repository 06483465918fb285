"""Puts calls into queues: one, one of many at the same time, or millions."""
from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from itertools import chain
from typing import Any, cast

from fastq.broker.broker import Broker
from fastq.broker.clients import Pending
from fastq.broker.requests import Refusal, Request, enqueue, note_queue
from fastq.bulk import CALL_COST, Bulk, Chunk
from fastq.config import Config
from fastq.errors import BrokerError, ConfigError, DuplicateJobError, JobIDConflictError, QueueFull
from fastq.job import BulkResult, ConflictOutcome, Job, JobReader, uid_string
from fastq.keys import QueueKeys
from fastq.merger import Merger
from fastq.middleware import OutgoingCall
from fastq.options import Options
from fastq.route import Args, Encoded, Kwargs, Route
from fastq.task import Item, Target

NOTE_MS = 3_600_000  # how often a queue in use is entered into the namespace's list of queues
_log = logging.getLogger("fastq")


class Producer:
    """The one way into the queues, from any thread, event loop or forked child."""

    def __init__(
        self, config: Config, broker: Broker, reader: JobReader, outgoing: Sequence[Callable[[OutgoingCall], None]] = ()
    ) -> None:
        self._outgoing = outgoing
        self._reader = reader
        self._warned_of_loop = False
        self.move(config, broker)

    def move(self, config: Config, broker: Broker) -> None:
        """Enqueue there from now on; the test kit moves a program to a place of its own and back."""
        self._config = config
        self._broker = broker
        self._max_queue = config.max_queue
        self._mergers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Merger] = weakref.WeakKeyDictionary()
        self._noted: dict[str, int] = {}  # queue -> when it has to be noted again
        self._moved: dict[Route, Route] = {}

    def here(self, route: Route) -> Route:
        """The route as it goes now: tasks and prepared calls keep the one that was made where the producer was then."""
        if route.config is self._config:
            return route
        found = self._moved.get(route)
        if found is None:
            found = self._moved[route] = Route(self._config, route.target, route.options, self._outgoing)
        return found

    def route(self, target: Target, options: Options) -> Route:
        """What all calls with this target and these options share. Raises UniqueConfigError."""
        return Route(self._config, target, options, self._outgoing)

    def enqueue(self, route: Route, args: Args, kwargs: Kwargs) -> Job:
        """Enqueue one job. Raises PayloadError, AlreadyEnqueued, QueueFull, BrokerError."""
        self._mind_the_loop()
        route = self.here(route)
        now_ms = self._broker.now_ms()
        job = route.encode(args, kwargs, now_ms)
        return self._send(route, job, now_ms)

    async def aenqueue(self, route: Route, args: Args, kwargs: Kwargs) -> Job:
        """Enqueue one job, in one call with what else this event loop enqueues now. Raises as `enqueue` does."""
        # As many calls as can be are made without a coroutine: this runs for each of a hundred thousand jobs a second.
        route = self.here(route)
        clock = self._broker.clock
        now_ms = await self._broker.anow_ms() if clock.offset_ms is None else clock.now_ms()
        job = route.encode(args, kwargs, now_ms)
        try:
            refusal = await self._merger().enqueue(route, job, now_ms)
        except BrokerError as error:
            self._explain(error, route, job)
            raise
        if (note := self._note_due(route.keys, now_ms)) is not None:
            await self._anote(note)
        return self._outcome(route, job, refusal)

    def enqueue_many(self, route: Route | None, items: Iterable[Item], *, handles: bool) -> BulkResult:
        """Enqueue in chunks; while the server works on one, the next is encoded. Raises BulkError."""
        self._mind_the_loop()
        bulk = self._bulk(route, handles, self._broker.now_ms)
        sent: tuple[Chunk, Pending[list[Refusal]]] | None = None
        try:
            for chunk in chain(bulk.chunks(iter(items)), bulk.rest()):
                if sent is not None:
                    bulk.settle(sent[0], sent[1].wait())
                sent = chunk, self._broker.begin(chunk.request(self._max_queue))
                self._note(chunk.keys, self._broker.clock.now_ms())
            if sent is not None:
                bulk.settle(sent[0], sent[1].wait())
        except (BrokerError, QueueFull) as error:
            raise bulk.failed(self._reader, error, sent and sent[0]) from error
        return bulk.result(self._reader)

    async def aenqueue_many(
        self, route: Route | None, items: Iterable[Item] | AsyncIterable[Item], *, handles: bool
    ) -> BulkResult:
        """`enqueue_many` for async code. Raises BulkError."""
        bulk = self._bulk(route, handles, self._broker.clock.now_ms)
        sent: tuple[Chunk, asyncio.Task[list[Refusal]]] | None = None
        try:
            await self._broker.anow_ms()  # connects, so that there is a clock
            async with aclosing(_chunks(bulk, items)) as chunks:
                async for chunk in chunks:
                    if sent is not None:
                        bulk.settle(sent[0], await sent[1])
                    call = self._broker.acall(chunk.request(self._max_queue))
                    sent = chunk, asyncio.get_running_loop().create_task(call)
                    await asyncio.sleep(0)  # let it be sent before the next one is encoded
                    if (note := self._note_due(chunk.keys, self._broker.clock.now_ms())) is not None:
                        await self._anote(note)
            if sent is not None:
                bulk.settle(sent[0], await sent[1])
        except (BrokerError, QueueFull) as error:
            raise bulk.failed(self._reader, error, sent and sent[0]) from error
        finally:
            if sent is not None:
                sent[1].cancel()  # it is done, unless this call is being cancelled
        return bulk.result(self._reader)

    def _request(self, route: Route, job: Encoded, now_ms: int) -> Request[list[Refusal]]:
        if route.plain is not None and job.framed:
            return route.plain.request(job.message)
        return enqueue(route.keys, (route.group(job, now_ms),), 1, laned=route.laned, max_queue=self._max_queue)

    def _send(self, route: Route, job: Encoded, now_ms: int, lane: tuple[bytes, int] | None = None) -> Job:
        request = self._request(route, job, now_ms)
        request.lane = lane
        try:
            refusals = self._broker.call(request)
        except BrokerError as error:
            self._explain(error, route, job)
            raise
        self._note(route.keys, now_ms)
        return self._outcome(route, job, refusals[0] if refusals else None)

    async def _arepeat(self, route: Route, job: Encoded, lane: tuple[bytes, int] | None) -> Job:
        now_ms = await self._broker.anow_ms()
        request = self._request(route, job, now_ms)
        request.lane = lane
        try:
            refusals = await self._broker.acall(request)
        except BrokerError as error:
            self._explain(error, route, job)
            raise
        if (note := self._note_due(route.keys, now_ms)) is not None:
            await self._anote(note)
        return self._outcome(route, job, refusals[0] if refusals else None)

    def _merger(self) -> Merger:
        loop = asyncio.get_running_loop()
        merger = self._mergers.get(loop)
        if merger is None:
            merger = self._mergers[loop] = Merger(self._broker.acall, self._max_queue)
        return merger

    def _outcome(self, route: Route, job: Encoded, refusal: Refusal | None) -> Job:
        # A job that met itself got in by an earlier try of which only the reply was lost.
        if refusal is None or refusal.uid == job.uid:
            return Job(self._reader, job.uid, route.queue, route.job_id, lock_key=job.lock_key)
        if refusal.outcome != "raise":
            outcome = cast(ConflictOutcome, refusal.outcome)
            return Job(self._reader, refusal.uid, route.queue, None, duplicate=True, conflict=outcome)
        holder = uid_string(refusal.uid)
        facts: dict[str, Any] = {"job_uid": holder, "queue": route.queue, "expires_in": refusal.expires_in}
        if refusal.kind == "conflict":
            raise JobIDConflictError(
                f"job_id {route.job_id!r} is in use in queue {route.queue!r} already, by job {holder}", **facts
            )
        what = "has ended" if refusal.state == "ended" else f"is {refusal.state}"
        raise DuplicateJobError(
            f"the same {route.task!r} {what} in queue {route.queue!r} already, as job {holder};"
            f" its lock lives {refusal.expires_in:.1f} s more at most",
            **facts,
        )

    def _explain(self, error: BrokerError, route: Route, job: Encoded) -> None:
        def again() -> Job:
            return self._send(route, job, self._broker.now_ms(), error.lane)

        async def aagain() -> Job:
            return await self._arepeat(route, job, error.lane)

        error.concerns(Job(self._reader, job.uid, route.queue, route.job_id, lock_key=job.lock_key), again, aagain)

    def _bulk(self, route: Route | None, handles: bool, clock: Callable[[], int]) -> Bulk:
        if route is not None and route.job_id is not None:
            raise ConfigError("job_id= is for one job: prepare() each call with its own, and enqueue these")
        most = min(CALL_COST, self._max_queue or CALL_COST)  # a larger call would never find room
        return Bulk(route and self.here(route), handles=handles, clock=clock, here=self.here, most=most)

    def _note(self, keys: QueueKeys, now_ms: int) -> None:
        if (request := self._note_due(keys, now_ms)) is not None:
            with suppress(BrokerError):  # the jobs are in; the list is for operators, and the next call notes it
                self._broker.call(request)

    async def _anote(self, note: Request[Any]) -> None:
        with suppress(BrokerError):
            await self._broker.acall(note)

    def _note_due(self, keys: QueueKeys, now_ms: int) -> Request[Any] | None:
        if now_ms < self._noted.get(keys.queue, 0):
            return None
        self._noted[keys.queue] = now_ms + NOTE_MS
        return note_queue(keys, now_ms)

    def _mind_the_loop(self) -> None:
        if not self._warned_of_loop and asyncio._get_running_loop() is not None:
            self._warned_of_loop = True
            _log.warning("enqueue() was called in a running event loop, which it blocks: await aenqueue() there")


async def _chunks(bulk: Bulk, items: Iterable[Item] | AsyncIterable[Item]) -> AsyncGenerator[Chunk, None]:
    if isinstance(items, AsyncIterable):
        buffer: list[Item] = []
        try:
            async for item in items:
                buffer.append(item)
                if len(buffer) == CALL_COST:
                    for chunk in bulk.chunks(iter(buffer)):
                        yield chunk
                    buffer = []
                    if bulk.stopped:
                        break
        except Exception as error:
            problem: Exception | None = error
        else:
            problem = None
        for chunk in bulk.chunks(iter(buffer)):
            yield chunk
        if problem is not None:
            bulk.stop(problem)
    else:
        for chunk in bulk.chunks(iter(items)):
            yield chunk
    for chunk in bulk.rest():
        yield chunk
