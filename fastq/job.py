"""What an enqueue gives back: the handle of a job, and the outcome of a bulk."""
from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast, overload
from uuid import UUID

ConflictOutcome = Literal["skipped", "replaced", "rerun"]

KEPT_REFUSALS = 10_000  # how many duplicates and how many conflicts a bulk result names; the counts are always exact


def uid_string(uid: bytes) -> str:
    """How a uid is shown to users: the usual UUID form."""
    return str(UUID(bytes=uid))


def uid_bytes(uid: str) -> bytes:
    """The 16 bytes of a uid in UUID form. Raises ValueError for anything else."""
    return UUID(uid).bytes


class JobReader(Protocol):
    """What a handle asks of its FastQ, which alone speaks to Redis."""

    def job_status(self, job: Job) -> str: ...
    async def ajob_status(self, job: Job) -> str: ...
    def job_result(self, job: Job, timeout: float | None) -> Any: ...
    async def ajob_result(self, job: Job, timeout: float | None) -> Any: ...
    def cancel_job(self, job: Job) -> bool: ...
    async def acancel_job(self, job: Job) -> bool: ...


class Job:
    """The handle of one enqueued job: it can be made again from its uid and queue by `app.job(uid, queue=...)`.

    `uid` is its identity in UUID form, which sorts by time (empty if the handle was made from a `job_id`); `job_id` is
    the caller's own id, or None. `duplicate` is true when another call of the same key was there already and this is
    the handle of that one; `conflict` then says what came of this call: "skipped", "replaced" or "rerun".
    """

    __slots__ = ("_reader", "conflict", "duplicate", "job_id", "lock_key", "queue", "raw_uid")

    def __init__(
        self,
        reader: JobReader,
        uid: bytes,
        queue: str,
        job_id: str | None = None,
        duplicate: bool = False,
        conflict: ConflictOutcome | None = None,
        lock_key: bytes = b"",
    ) -> None:
        self._reader = reader
        self.raw_uid = uid
        self.lock_key = lock_key  # what its message carries, where that is known
        self.queue = queue
        self.job_id = job_id
        self.duplicate = duplicate
        self.conflict = conflict

    @property
    def uid(self) -> str:
        """The job's identity in UUID form."""
        return uid_string(self.raw_uid) if self.raw_uid else ""

    def status(self) -> str:
        """The state of the job: scheduled, waiting, running, retrying, succeeded, dropped, dead, cancelled or expired.

        "untracked" is a job without a record of its own that is neither scheduled, retrying nor dead: a plain job that
        waits, runs or has ended. "unknown": there is no such job, or its record has expired. The handle that the
        enqueue of a unique job gave says "waiting" for as long as the lock is the job's own, and "running" where its
        start is noted in the lock (until="start", `renew`, "replace", "rerun", or an attempt after the first).
        """
        return self._reader.job_status(self)

    async def astatus(self) -> str:
        """`status()` for async code."""
        return await self._reader.ajob_status(self)

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the job to end and return its result.

        `timeout` is in seconds, None waits as long as the job takes. Raises JobFailed when the job has not succeeded,
        ResultTimeout when it did not end in time, ResultUnavailable when it keeps no result.
        """
        return self._reader.job_result(self, timeout)

    async def aresult(self, timeout: float | None = None) -> Any:
        """`result()` for async code."""
        return await self._reader.ajob_result(self, timeout)

    def cancel(self) -> bool:
        """Ask that the job does not run. True: it will not start any more.

        False: it has ended, or runs, or waits in a frame; the wish is recorded and obeyed at the next chance.
        """
        return self._reader.cancel_job(self)

    async def acancel(self) -> bool:
        """`cancel()` for async code."""
        return await self._reader.acancel_job(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Job):
            return NotImplemented
        return (self.raw_uid, self.queue, self.job_id) == (other.raw_uid, other.queue, other.job_id)

    def __hash__(self) -> int:
        return hash((self.raw_uid, self.queue, self.job_id))

    def __repr__(self) -> str:
        named = f", job_id={self.job_id!r}" if self.job_id is not None else ""
        return f"<Job {self.uid or '?'} in {self.queue!r}{named}{', duplicate' if self.duplicate else ''}>"


@dataclass(frozen=True, slots=True)
class Duplicate:
    """An item of a bulk whose lock was held: its place in the bulk, the holder's uid, the seconds left.

    `outcome` is what its `on_conflict` made of it: "raise" (refused), "skipped", "replaced" or "rerun".
    """

    index: int
    job_uid: str
    expires_in: float
    outcome: str = "raise"


@dataclass(frozen=True, slots=True)
class Conflict:
    """An item of a bulk whose `job_id` was in use: its place in the bulk, the holder's uid, the seconds left."""

    index: int
    job_uid: str
    expires_in: float


class Handles:
    """What a bulk keeps of its items: 16 bytes of each, and a little of those that are out of the ordinary."""

    __slots__ = ("_job_ids", "_met", "_queue_of", "_queues", "uids")

    def __init__(self, queues: list[str]) -> None:
        self.uids = bytearray()  # of all items, in their order: a refused one's is its holder's
        self._queues = queues
        self._queue_of: array[int] | None = None  # each item's place in _queues; None while all are in the first
        self._job_ids: dict[int, str] = {}
        self._met: dict[int, str] = {}  # what came of the refused items that are named

    def add(self, uid: bytes, queue: str, job_id: str | None) -> None:
        """Keep one item."""
        index = len(self)
        self.uids += uid
        if job_id is not None:
            self._job_ids[index] = job_id
        if queue not in self._queues:
            self._queues.append(queue)
        if self._queue_of is None and queue != self._queues[0]:
            self._queue_of = array("H", bytes(2 * index))
        if self._queue_of is not None:
            self._queue_of.append(self._queues.index(queue))

    def met(self, index: int, holder: bytes, outcome: str | None) -> None:
        """Item `index` met another job; `outcome` None: it is beyond those that are named."""
        self.uids[16 * index : 16 * index + 16] = holder
        if outcome is not None:
            self._met[index] = outcome

    def cut(self, length: int) -> None:
        """Forget the items from `length` on."""
        del self.uids[16 * length :]
        if self._queue_of is not None:
            del self._queue_of[length:]

    def job(self, reader: JobReader, index: int) -> Job:
        """The handle of an item."""
        outcome = self._met.get(index)
        return Job(
            reader,
            bytes(self.uids[16 * index : 16 * index + 16]),
            self._queues[self._queue_of[index] if self._queue_of is not None else 0],
            self._job_ids.get(index),
            duplicate=outcome is not None,
            conflict=cast("ConflictOutcome | None", None if outcome == "raise" else outcome),
        )

    def __len__(self) -> int:
        return len(self.uids) // 16


class BulkResult(Sequence[Job]):
    """The outcome of a bulk enqueue.

    `enqueued` counts the jobs that are in; `duplicate_count` and `conflict_count` those that were refused, of which
    `duplicates` and `conflicts` name the first 10,000 each. `result[i]` is the handle of item i: its own job, or the
    one that it met (16 bytes are kept an item, none with `handles=False`).

    >>> result = send_email.enqueue_many([("o-1",), ("o-2",), ("o-1",)])  # doctest: +SKIP
    >>> result.enqueued, result.duplicates[0].index  # doctest: +SKIP
    (2, 2)
    """

    __slots__ = (
        "_handles",
        "_reader",
        "conflict_count",
        "conflicts",
        "duplicate_count",
        "duplicates",
        "enqueued",
    )

    def __init__(
        self,
        reader: JobReader,
        *,
        enqueued: int,
        duplicate_count: int,
        conflict_count: int,
        duplicates: list[Duplicate],
        conflicts: list[Conflict],
        handles: Handles | None,
    ) -> None:
        self._reader = reader
        self._handles = handles
        self.enqueued = enqueued
        self.duplicate_count = duplicate_count
        self.conflict_count = conflict_count
        self.duplicates = duplicates
        self.conflicts = conflicts

    def __len__(self) -> int:
        """The items whose handle is kept: all of them, or none with `handles=False`."""
        return len(self._handles) if self._handles is not None else 0

    @overload
    def __getitem__(self, index: int) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> list[Job]: ...
    def __getitem__(self, index: int | slice) -> Job | list[Job]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if self._handles is None:
            raise IndexError("this bulk kept no handles: it was enqueued with handles=False")
        return self._handles.job(self._reader, range(len(self))[index])

    def __repr__(self) -> str:
        counts = f"{self.enqueued} enqueued, {self.duplicate_count} duplicates, {self.conflict_count} conflicts"
        return f"<BulkResult: {counts}>"
