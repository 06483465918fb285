"""Dead jobs: to look at, to replay and to delete. `app.queue(name).dead` is the way to them.

The steps are generators that yield requests and get their answers, so that sync and async callers share them.
"""
from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from fastq.broker import requests
from fastq.broker.broker import Broker
from fastq.codec import Message, PayloadDecoder
from fastq.errors import ConfigError, PayloadError
from fastq.job import Job, uid_bytes, uid_string
from fastq.keys import QueueKeys

T = TypeVar("T")
Steps: TypeAlias = Generator["requests.Request[Any]", Any, T]

UNREADABLE = "fastq:unreadable"  # what stands as the task of bytes that are no message
AT_ONCE = 200  # jobs in one call
PAGE = 1000
KEPT_REFUSALS = 10_000  # that a result names; the counts are always exact

_decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder().decode
Refusal: TypeAlias = Literal["not dead", "lock held", "id in use"]
_REFUSALS: dict[int, Refusal] = {0: "not dead", 2: "lock held", 3: "id in use"}


@dataclass(frozen=True, slots=True)
class DeadJob:
    """A job that will not run any more, unless it is replayed.

    `args` and `kwargs` are as annotated when its task is known in this program and they fit it, else as msgpack has
    them, and None when they cannot be read; `payload` is their encoded form. `key` is that of its lock, or None.
    `reason` says why it is dead; `error` and `traceback` are what its last attempt left. `attempts` counts those that
    were begun, `crashes` the workers that died with it in hand. `unreadable`: it is no job, but bytes of a stream
    entry that nobody could read (`payload`).
    """

    uid: str
    queue: str
    task: str
    args: tuple[Any, ...] | None
    kwargs: dict[str, Any] | None
    payload: bytes = field(repr=False)
    job_id: str | None
    key: str | None
    reason: str
    error: str
    traceback: str = field(repr=False)
    attempts: int
    crashes: int
    enqueued_at: datetime
    died_at: datetime
    unreadable: bool = False


@dataclass(frozen=True, slots=True)
class ReplayRefusal:
    """A job that was not replayed: it is "not dead", or another job has its lock ("lock held") or its id ("id in use")."""

    job_uid: str
    reason: Refusal


@dataclass(slots=True)
class ReplayResult:
    """What came of a replay. `refused` names the first 10,000 that were not replayed, `refused_count` counts all."""

    replayed: int = 0
    refused_count: int = 0
    refused: list[ReplayRefusal] = field(default_factory=list)


JobRef: TypeAlias = "str | Job | DeadJob"
Page: TypeAlias = "list[DeadJob]"  # within the class, `list` is a method


class DeadJobs:
    """The dead jobs of one queue. A job is named by its uid, its `Job` or its `DeadJob`.

    >>> for job in app.queue("mail").dead.list(limit=20):  # doctest: +SKIP
    ...     print(job.task, job.args, job.error)
    >>> app.queue("mail").dead.replay_all().replayed  # doctest: +SKIP
    12
    """

    def __init__(self, broker: Broker, keys: QueueKeys, decoder_of: Callable[[str], PayloadDecoder | None]) -> None:
        self._broker = broker
        self._keys = keys
        self._decoder_of = decoder_of

    def count(self) -> int:
        """How many there are."""
        return self._broker.call(requests.dead_count(self._keys))

    async def acount(self) -> int:
        """`count()` for async code."""
        return await self._broker.acall(requests.dead_count(self._keys))

    def list(self, limit: int = 100, offset: int = 0) -> Page:
        """A page of them, those that died last first."""
        return self._broker.run(self._list(limit, offset))

    async def alist(self, limit: int = 100, offset: int = 0) -> Page:
        """`list()` for async code."""
        return await self._broker.arun(self._list(limit, offset))

    def get(self, job: JobRef) -> DeadJob | None:
        """One of them, or None if it is not dead. Raises ConfigError for what is no uid."""
        return self._broker.run(self._get(job))

    async def aget(self, job: JobRef) -> DeadJob | None:
        """`get()` for async code."""
        return await self._broker.arun(self._get(job))

    def replay(self, *jobs: JobRef) -> ReplayResult:
        """Enqueue them again, with their uid, arguments, lock and id, from attempt 1.

        One whose lock or id another job has taken meanwhile stays dead and is reported. Raises ConfigError.
        """
        return self._broker.run(self._replay(jobs))

    async def areplay(self, *jobs: JobRef) -> ReplayResult:
        """`replay()` for async code."""
        return await self._broker.arun(self._replay(jobs))

    def replay_all(self) -> ReplayResult:
        """Replay all that are dead now, the oldest first."""
        return self._broker.run(self._replay_all())

    async def areplay_all(self) -> ReplayResult:
        """`replay_all()` for async code."""
        return await self._broker.arun(self._replay_all())

    def delete(self, *jobs: JobRef) -> int:
        """Delete them, which frees their locks and ids; how many there were. Raises ConfigError."""
        return self._broker.run(self._delete(jobs))

    async def adelete(self, *jobs: JobRef) -> int:
        """`delete()` for async code."""
        return await self._broker.arun(self._delete(jobs))

    def delete_all(self) -> int:
        """Delete all that are dead now; how many there were."""
        return self._broker.run(self._delete_all())

    async def adelete_all(self) -> int:
        """`delete_all()` for async code."""
        return await self._broker.arun(self._delete_all())

    # ---

    def _list(self, limit: int, offset: int) -> Steps[Page]:
        if limit < 1 or offset < 0:
            raise ConfigError(f"limit={limit!r}, offset={offset!r}: at least 1 and 0")
        page = yield requests.dead_page(self._keys, offset=offset, limit=limit)
        if not page:
            return []
        bodies = yield requests.dead_bodies(self._keys, [uid for uid, _ in page])
        return [
            self._show(uid, died, message, why)
            for (uid, died), (message, why) in zip(page, bodies, strict=True)
            if message is not None  # deleted meanwhile
        ]

    def _get(self, job: JobRef) -> Steps[DeadJob | None]:
        uid = yield from self._uid(job)
        found = yield requests.dead_one(self._keys, uid)
        if found is None or found[1][0] is None:
            return None
        died, (message, why) = found
        return self._show(uid, died, message, why)

    def _replay(self, jobs: Sequence[JobRef]) -> Steps[ReplayResult]:
        uids = yield from self._uids(jobs)
        return (yield from self._replay_uids(uids))

    def _replay_all(self) -> Steps[ReplayResult]:
        return (yield from self._replay_uids((yield from self._all())))

    def _replay_uids(self, uids: Sequence[bytes]) -> Steps[ReplayResult]:
        result = ReplayResult()
        at = 0
        while at < len(uids):
            batch = uids[at : at + AT_ONCE]
            answers = yield requests.replay(self._keys, batch)
            at += len(answers)
            for uid, answer in zip(batch, answers, strict=False):
                if answer == 1:
                    result.replayed += 1
                    continue
                result.refused_count += 1
                if len(result.refused) < KEPT_REFUSALS:
                    result.refused.append(ReplayRefusal(uid_string(uid), _REFUSALS[answer]))
        return result

    def _delete(self, jobs: Sequence[JobRef]) -> Steps[int]:
        uids = yield from self._uids(jobs)
        return (yield from self._delete_uids(uids))

    def _delete_all(self) -> Steps[int]:
        return (yield from self._delete_uids((yield from self._all())))

    def _delete_uids(self, uids: Sequence[bytes]) -> Steps[int]:
        total = at = 0
        while at < len(uids):
            deleted, looked_at = yield requests.delete(self._keys, uids[at : at + AT_ONCE])
            total += deleted
            at += looked_at
        return total

    def _all(self) -> Steps[Sequence[bytes]]:
        """The uids of all, the oldest first. They are read before anything is done: what dies meanwhile is not among them."""
        found: dict[bytes, None] = {}  # pages overlap when a job dies meanwhile
        offset = 0
        while page := (yield requests.dead_page(self._keys, offset=offset, limit=PAGE)):
            found.update((uid, None) for uid, _ in page)
            offset += len(page)
        return tuple(reversed(found))

    def _uids(self, jobs: Iterable[JobRef]) -> Steps[Sequence[bytes]]:
        uids = []
        for job in jobs:
            uids.append((yield from self._uid(job)))
        return uids

    def _uid(self, job: JobRef) -> Steps[bytes]:
        if isinstance(job, Job):
            if job.raw_uid:
                return job.raw_uid
            known = yield requests.status(self._keys, b"", job.job_id or "")
            return bytes(known.uid) or bytes(16)  # nobody's
        try:
            return uid_bytes(job.uid if isinstance(job, DeadJob) else job)
        except (ValueError, AttributeError, TypeError):
            raise ConfigError(f"{job!r} is no job: give its uid, its Job or its DeadJob") from None

    def _show(self, uid: bytes, died: float, raw: bytes, why: bytes | None) -> DeadJob:
        facts: dict[str, Any] = {"uid": uid_string(uid), "queue": self._keys.queue, "died_at": _time(died)}
        reason = why.decode("utf-8", "replace") if why is not None else ""
        try:
            message = Message(raw)
        except ValueError:
            return DeadJob(
                task=UNREADABLE, args=None, kwargs=None, payload=raw, job_id=None, key=None, error="", traceback="",
                reason=reason or "it cannot be read as a message", attempts=0, crashes=0, enqueued_at=_time(died),
                unreadable=True, **facts,
            )  # fmt: skip
        error = _last_error(message)
        unreadable = message.task == UNREADABLE
        args, kwargs = read_arguments(message, self._decoder_of(message.task))
        return DeadJob(
            task=message.task,
            args=None if unreadable else args,
            kwargs=None if unreadable else kwargs,
            payload=args[0] if unreadable and args else message.payload,
            job_id=message.job_id or None,
            key=message.lock_key.partition(b":")[2].decode("utf-8", "replace") if message.lock_key else None,
            reason=reason or str(error.get("why", "")),
            error=": ".join(str(error[name]) for name in ("type", "text") if error.get(name)),
            traceback=str(error.get("traceback", "")),
            attempts=message.attempt,
            crashes=message.crashes,
            enqueued_at=_time(message.enqueued_at),
            unreadable=unreadable,
            **facts,
        )


Arguments: TypeAlias = tuple[tuple[Any, ...] | None, dict[str, Any] | None]


def read_arguments(message: Message, decoder: PayloadDecoder | None) -> Arguments:
    """The arguments of a job by its task's decoder; where they do not fit it, or there is none, as msgpack has them."""
    if decoder is not None:
        try:
            return decoder.decode(message.payload)
        except PayloadError:
            pass  # that may be why it is dead: show what there is
    try:
        args, kwargs = _decode(message.payload)
        return tuple(args), dict(kwargs)
    except (ValueError, TypeError, msgspec.MsgspecError, RecursionError):
        return None, None


def _last_error(message: Message) -> dict[str, Any]:
    try:
        error = message.extras.get("error")
    except ValueError:
        return {}
    return error if isinstance(error, dict) else {}


def _time(ms: float) -> datetime:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # of bytes that only look like a message
        return datetime.fromtimestamp(0, UTC)
