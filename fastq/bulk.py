"""Bulk enqueues without I/O: items in, chunks out, and the outcome of each chunk into one result.

Items of one plain or unique kind are packed into frames in compiled code. From the first prepared call on, and for
kinds that need more than a frame (delayed, tracked, with a job_id, checked against annotations), they are encoded one
by one and gathered by queue.
"""
from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, cast

from fastq.broker.requests import WAITING, Refusal, Request, enqueue, plain_frame, unique_frame
from fastq.codec import EncodeError, Packer, payload_error
from fastq.errors import BulkError, PayloadError
from fastq.job import KEPT_REFUSALS, BulkResult, Conflict, Duplicate, Handles, JobReader, uid_string
from fastq.keys import QueueKeys
from fastq.route import Arg, Encoded, Route
from fastq.task import PreparedCall

CALL_COST = 1_000  # jobs in one call, those with a lock or an id weighing more
CALL_BYTES = 1 << 20
_END = object()


class Chunk:
    """The jobs of one call, and which items of the bulk they are."""

    __slots__ = ("groups", "indexes", "keys", "laned")

    def __init__(self, keys: QueueKeys, groups: list[Sequence[Arg]], indexes: Sequence[int], laned: bool) -> None:
        self.keys = keys
        self.groups = groups
        self.indexes = indexes
        self.laned = laned

    def request(self, max_queue: int | None) -> Request[list[Refusal]]:
        """The call that enqueues them."""
        jobs = len(self.indexes)
        return enqueue(self.keys, self.groups, jobs, laned=self.laned or jobs > 1, max_queue=max_queue)


class Gathering:
    """Jobs of one queue on their way into a call, in the order in which they came."""

    __slots__ = ("_groups", "_keys", "_laned", "_lock_ttl_ms", "_locks", "_packer", "_size", "_values", "cost", "indexes")

    def __init__(self, keys: QueueKeys) -> None:
        self._keys = keys
        self._groups: list[Sequence[Arg]] = []
        self._packer = Packer()
        self._lock_ttl_ms = 0  # of the locks of the jobs in the packer; 0: they have none
        self._locks: list[bytes] = []
        self._values: list[bytes] = []
        self._laned = False
        self._size = 0
        self.cost = 0
        self.indexes: list[int] = []

    @property
    def full(self) -> bool:
        """Whether a call takes no more."""
        return self.cost >= CALL_COST or self._size >= CALL_BYTES

    def add(self, index: int, route: Route, job: Encoded, now_ms: int) -> None:
        """Take in a job; plain ones that follow each other share frames, and so do those whose locks live as long."""
        self.indexes.append(index)
        self.cost += route.cost
        self._size += len(job.message)
        self._laned = self._laned or route.laned
        if not job.framed:
            self._take_frames()
            self._groups.append(route.group(job, now_ms))
            return
        if route.lock_ttl_ms != self._lock_ttl_ms:
            self._take_frames()
            self._lock_ttl_ms = route.lock_ttl_ms
        self._packer.add(job.message)
        if job.lock_key:
            self._locks.append(self._keys.unique(job.lock_key))
            self._values.append(job.uid + WAITING)

    def take(self) -> Chunk:
        """What was gathered; it begins anew."""
        self._take_frames()
        chunk = Chunk(self._keys, self._groups, self.indexes, self._laned)
        self._groups, self.indexes, self._laned, self._size, self.cost = [], [], False, 0, 0
        return chunk

    def _take_frames(self) -> None:
        frames = self._packer.take()
        if not self._locks:
            self._groups += _plain_groups(frames)
            return
        ends = list(accumulate(count for _, count in frames))
        parts = [slice(end - count, end) for end, (_, count) in zip(ends, frames, strict=True)]
        locks = [(b"".join(self._values[part]), self._locks[part]) for part in parts]
        self._groups += _unique_groups(frames, locks, self._lock_ttl_ms)
        self._locks, self._values = [], []


class Bulk:
    """One bulk enqueue, of `most` jobs a call. `route` None: every item is a prepared call. `here`: see `Producer.here`."""

    def __init__(
        self, route: Route | None, *, handles: bool, clock: Callable[[], int], here: Callable[[Route], Route], most: int
    ) -> None:
        self._route = route
        self._clock = clock
        self._here = here
        self._most = most
        self._packer = Packer()
        self._one_by_one = route is None or not route.packable
        self._next = 0  # the index of the next item
        self._gathered: dict[str, Gathering] = {}
        self._unsettled: list[Chunk] = []
        self._problem: BaseException | None = None
        self._handles = Handles([route.queue] if route is not None else []) if handles else None
        self._enqueued = 0
        self._refused = {"duplicate": 0, "conflict": 0}
        self._duplicates: list[Duplicate] = []
        self._conflicts: list[Conflict] = []

    def chunks(self, items: Iterator[Any]) -> Iterator[Chunk]:
        """Encode items and yield what is ready to be sent. Stops at the first bad item: see `result`."""
        if not self._one_by_one:
            items = yield from self._pack(items)
        yield from self._gather(items)

    def rest(self) -> Iterator[Chunk]:
        """What is left to be sent when there are no more items."""
        for gathering in self._gathered.values():
            if gathering.indexes:
                yield self._sent(gathering.take())

    @property
    def stopped(self) -> bool:
        """Whether a bad item ended it: no more items are to be read."""
        return self._problem is not None

    def stop(self, problem: Exception) -> None:
        """The source of the items failed."""
        self._problem = self._problem or problem

    def settle(self, chunk: Chunk, refusals: list[Refusal]) -> None:
        """Take in the outcome of a chunk."""
        self._unsettled.remove(chunk)
        self._enqueued += len(chunk.indexes) - len(refusals)
        for refusal in refusals:
            self._refuse(chunk.indexes[refusal.index], refusal)

    def result(self, reader: JobReader) -> BulkResult:
        """The outcome of all that was settled. Raises BulkError when a bad item ended it."""
        if (problem := self._problem) is None:
            return self._result(reader)
        if not isinstance(problem, Exception):  # KeyboardInterrupt while an item was made is not ours to wrap
            raise problem
        raise self.failed(reader, problem) from problem

    def failed(self, reader: JobReader, error: Exception, chunk: Chunk | None = None) -> BulkError:
        """The error that ends the bulk. `chunk`: the one that was on its way."""
        index = self._next
        for open_indexes in [c.indexes for c in self._unsettled] + [g.indexes for g in self._gathered.values()]:
            if open_indexes:
                index = min(index, open_indexes[0])
        if self._handles is not None:
            self._handles.cut(index)
        return BulkError(
            f"the bulk ended at item {index} ({self._enqueued} jobs are in, see .result and .uncertain): {error}",
            index=index,
            result=self._result(reader),
            uncertain=chunk.indexes if chunk is not None and getattr(error, "maybe_enqueued", False) else (),
        )

    def _pack(self, items: Iterator[Any]) -> Generator[Chunk, None, Iterator[Any]]:
        """Pack items of one kind into frames; returns those that are to be encoded one by one."""
        route = cast(Route, self._route)
        uids = self._handles.uids if self._handles is not None else None
        jobs, prefix = min(CALL_COST // route.cost, self._most), route.keys.unique(b"")
        while True:
            now_ms = self._clock()
            packed = self._packer.pack(route.template, items, now_ms, jobs, CALL_BYTES, route.key_of, uids, prefix)
            if packed.count:
                indexes = range(self._next, self._next + packed.count)
                self._next += packed.count
                if route.key_of is not None:
                    groups = _unique_groups(packed.frames, packed.locks, route.lock_ttl_ms)
                else:
                    groups = _plain_groups(packed.frames)
                yield self._sent(Chunk(route.keys, groups, indexes, route.laned))
            if packed.error is not None:
                error = packed.error
                self._problem = payload_error(route.task, error) if isinstance(error, EncodeError) else error
                return iter(())
            if packed.has_foreign:
                self._one_by_one = True
                return chain((packed.foreign,), items)
            if packed.ended:
                return iter(())

    def _gather(self, items: Iterator[Any]) -> Iterator[Chunk]:
        """Encode items one by one and gather them by queue."""
        while True:
            try:
                item = next(items, _END)
                if item is _END:
                    return
                route, args, kwargs = self._call(item)
                now_ms = self._clock()
                job = route.encode(args, kwargs, now_ms)
            except BaseException as error:
                self._problem = error
                return
            gathering = self._gathered.get(route.queue)
            if gathering is None:
                gathering = self._gathered[route.queue] = Gathering(route.keys)
            gathering.add(self._next, route, job, now_ms)
            if self._handles is not None:
                self._handles.add(job.uid, route.queue, route.job_id)
            self._next += 1
            if gathering.full or len(gathering.indexes) >= self._most:
                yield self._sent(gathering.take())

    def _call(self, item: Any) -> tuple[Route, tuple[Any, ...], dict[str, Any]]:
        """What an item stands for. Raises PayloadError for anything but a tuple, a dict or a prepared call."""
        if type(item) is PreparedCall:
            return self._here(item.route), item.args, item.kwargs
        if self._route is not None:
            if type(item) is tuple:
                return self._route, item, {}
            if type(item) is dict and all(type(name) is str for name in item):
                return self._route, (), item
        kind = type(item).__name__
        if self._route is None:
            raise PayloadError(f"a {kind} is no item here: give prepared calls, task.prepare(...)")
        raise PayloadError(
            f"a {kind} is no item: give a tuple of positional arguments, such as (x,), a dict of keyword arguments with"
            " str keys, or a prepared call"
        )

    def _sent(self, chunk: Chunk) -> Chunk:
        self._unsettled.append(chunk)
        return chunk

    def _refuse(self, index: int, refusal: Refusal) -> None:
        self._refused[refusal.kind] += 1
        if refusal.kind == "conflict":
            named = len(self._conflicts) < KEPT_REFUSALS
            if named:
                self._conflicts.append(Conflict(index, uid_string(refusal.uid), refusal.expires_in))
        else:
            named = len(self._duplicates) < KEPT_REFUSALS
            if named:
                self._duplicates.append(Duplicate(index, uid_string(refusal.uid), refusal.expires_in, refusal.outcome))
        if self._handles is not None:
            self._handles.met(index, refusal.uid, refusal.outcome if named else None)

    def _result(self, reader: JobReader) -> BulkResult:
        return BulkResult(
            reader,
            enqueued=self._enqueued,
            duplicate_count=self._refused["duplicate"],
            conflict_count=self._refused["conflict"],
            duplicates=self._duplicates,
            conflicts=self._conflicts,
            handles=self._handles,
        )


def _plain_groups(frames: list[tuple[bytes, int]]) -> list[Sequence[Arg]]:
    return [plain_frame(frame, count) for frame, count in frames]


def _unique_groups(
    frames: list[tuple[bytes, int]], locks: list[tuple[bytes, list[bytes]]], ttl_ms: int
) -> list[Sequence[Arg]]:
    """`locks`: of each frame, what its locks hold and their keys."""
    return [
        unique_frame(frame, count, ttl_ms, values, keys)
        for (frame, count), (values, keys) in zip(frames, locks, strict=True)
    ]
