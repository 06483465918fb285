"""What operators look at: how queues keep up, who works, what is scheduled, which locks are held, where a job is.

Each read is bounded, whatever a queue holds. The steps are generators that yield requests and get their answers, for
`broker.run` and `broker.arun`.
"""
from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import unquote

from fastq.broker import inspection, requests
from fastq.codec import Message, PayloadDecoder
from fastq.dead import read_arguments
from fastq.job import uid_string
from fastq.keys import QueueKeys, queue_keys
from fastq.queues import QueueCounts, shown
from fastq.unique import lock_prefix

T = TypeVar("T")
Steps: TypeAlias = Generator["requests.Request[Any]", Any, T]
DecoderOf: TypeAlias = Callable[[str], PayloadDecoder | None]

RATES = ("enqueued", "succeeded", "failed", "dead")
LOOKED_AT_ONCE = 200  # locks
SCANNED_AT_ONCE = 1000  # keys
SCANNED_FOR_A_PAGE = 300_000  # keys
UNREADABLE = "(unreadable)"


@dataclass(frozen=True, slots=True)
class QueueOverview:
    """A queue at a glance.

    `oldest_wait`: the seconds that its oldest waiting job has waited since it came in, fell due or came back; None if
    none waits. `rates`: jobs (attempts for "failed") a second over the last minutes, "enqueued", "succeeded", "failed"
    and "dead"; empty where no worker has been there to note them.
    """

    name: str
    counts: QueueCounts
    oldest_wait: float | None
    rates: dict[str, float]


@dataclass(slots=True)
class WorkerOverview:
    """A worker: the queues that it serves, the stream entries that it has in hand, and seconds since its last sign of life.

    `fenced`: it gave none for too long, and what it has in hand is given to others. `silent_for` None: it has
    something in hand, and no queue knows it.
    """

    name: str
    queues: list[str] = field(default_factory=list)
    entries: int = 0
    silent_for: float | None = None
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class ScheduledJob:
    """A job that waits for its time: for its first attempt ("scheduled"), or for the next ("retrying")."""

    uid: str
    queue: str
    task: str
    state: str
    due: datetime
    attempt: int
    job_id: str | None
    key: str | None
    error: str


@dataclass(frozen=True, slots=True)
class HeldLock:
    """A lock that is held, as `fastq.locks.LockInfo` tells of it, with its queue."""

    queue: str
    task: str
    key: str
    job_uid: str
    state: str
    expires_in: float


class LockPage(NamedTuple):
    """Some locks, and the cursor of the next page: None after the last."""

    locks: list[HeldLock]
    cursor: int | None


@dataclass(frozen=True, slots=True)
class JobReport:
    """All that is known of a job. Beyond its state it is so for scheduled, retrying and dead ones only; others are None."""

    uid: str
    queue: str
    state: str
    task: str | None = None
    args: tuple[Any, ...] | None = None
    kwargs: dict[str, Any] | None = None
    job_id: str | None = None
    key: str | None = None
    attempt: int | None = None
    crashes: int | None = None
    enqueued_at: datetime | None = None
    due: datetime | None = None
    expires: datetime | None = None
    error: str = ""
    traceback: str = ""


def overview(namespace: str, names: Sequence[str] = ()) -> Steps[list[QueueOverview]]:
    """These queues, or all that were ever used, by name."""
    found = []
    for name in names or (yield from queue_names(namespace)):
        keys = queue_keys(namespace, name)
        pace = yield inspection.pace(keys)
        counts = shown((yield inspection.counts(keys)))
        oldest = pace.oldest_ms / 1000 if pace.oldest_ms >= 0 else None
        found.append(QueueOverview(name, counts, oldest, _rates(pace, counts.totals)))
    return found


def queue_names(namespace: str) -> Steps[list[str]]:
    """All queues that were ever used, by name."""
    return sorted((yield inspection.queues(namespace)))


def workers(namespace: str, names: Sequence[str] = ()) -> Steps[list[WorkerOverview]]:
    """The workers of these queues, or of all, by name."""
    found: dict[bytes, WorkerOverview] = {}

    def at(name: bytes) -> WorkerOverview:
        return found.setdefault(name, WorkerOverview(name.decode("utf-8", "replace")))

    for queue in names or (yield from queue_names(namespace)):
        keys = queue_keys(namespace, queue)
        for name, age in (yield inspection.beats(keys)):
            worker = at(name)
            worker.queues.append(queue)
            worker.fenced = worker.fenced or age < 0
            if age >= 0:
                worker.silent_for = age if worker.silent_for is None else min(age, worker.silent_for)
        for holding in (yield inspection.consumers(keys)):
            if holding.entries:
                worker = at(holding.worker)
                worker.entries += holding.entries
                if queue not in worker.queues:
                    worker.queues.append(queue)
    return [found[name] for name in sorted(found)]


def scheduled(keys: QueueKeys, *, limit: int, offset: int = 0) -> Steps[list[ScheduledJob]]:
    """A page of the jobs that wait for their time, the next one first."""
    page = yield inspection.scheduled_page(keys, offset=offset, limit=limit)
    if not page:
        return []
    bodies = yield inspection.bodies(keys, [uid for uid, _ in page])
    return [_scheduled(keys, uid, due, raw) for (uid, due), raw in zip(page, bodies, strict=True) if raw is not None]


def locks(namespace: str, *, queue: str = "", task: str = "", limit: int, cursor: int = 0) -> Steps[LockPage]:
    """A page of the locks that are held, of one queue and one task if these are given, in no order.

    They are looked for among all keys of the database: a page ends with `limit` locks, or a few hundred more, or with
    fewer when many keys had to be looked at.
    """
    prefix = f"{namespace}:{{{queue or '*'}}}:unique:"
    pattern = prefix + "".join("\\" + c if c in "*?[]^\\" else c for c in _task_prefix(task)) + "*"
    found: dict[bytes, HeldLock] = {}
    scanned, count = 0, min(limit, SCANNED_AT_ONCE)
    while True:
        cursor, names = yield inspection.keys_like(pattern, cursor, count, "string")
        scanned += count
        yield from _look(namespace, names, found)
        if cursor == 0:
            return LockPage([*found.values()], None)
        if len(found) >= limit or scanned >= SCANNED_FOR_A_PAGE:
            return LockPage([*found.values()], cursor)
        count = min(2 * count, SCANNED_AT_ONCE)


def split_key(namespace: str, name: bytes) -> tuple[str, str, bytes] | None:
    """Queue, kind and rest of a key such as `ns:{queue}:unique:<rest>`; None for any other."""
    start = f"{namespace}:{{".encode()
    if not name.startswith(start):
        return None
    queue, found, rest = name[len(start) :].partition(b"}:")
    kind, colon, rest = rest.partition(b":")
    return (queue.decode(), kind.decode("utf-8", "replace"), rest) if found and colon else None


def job(keys: QueueKeys, uid: bytes, job_id: str, decoder_of: DecoderOf) -> Steps[JobReport | None]:
    """What is known of a job in this queue, by its uid or (uid b"") its explicit id; None: nothing."""
    known = yield requests.status(keys, uid, job_id)
    if not known.state:
        return None
    name = uid_string(known.uid)
    if not known.message:
        return JobReport(name, keys.queue, known.state, job_id=job_id or None)
    try:
        message = Message(known.message)
        error = error_of(message)
        args, kwargs = read_arguments(message, decoder_of(message.task))
    except ValueError:
        return JobReport(name, keys.queue, known.state, UNREADABLE)
    return JobReport(
        name, keys.queue, known.state, message.task, args, kwargs, message.job_id or None, _lock(message),
        message.attempt, message.crashes, _time(message.enqueued_at), _time(message.due_ms), _time(message.expires_ms),
        _told(error), str(error.get("traceback", "")),
    )  # fmt: skip


def error_of(message: Message) -> dict[str, Any]:
    """What its last attempt left in a message."""
    error = message.extras.get("error")
    return error if isinstance(error, dict) else {}


# ---


def _rates(pace: inspection.Pace, totals: dict[str, int]) -> dict[str, float]:
    seconds = (pace.now_ms - pace.past.get("at", pace.now_ms)) / 1000
    if seconds < 1:
        return {}
    return {name: max(0.0, (totals.get(name, 0) - pace.past.get(name, 0)) / seconds) for name in RATES}


def _task_prefix(task: str) -> str:
    return lock_prefix(task).decode() if task else ""


def _look(namespace: str, names: Sequence[bytes], found: dict[bytes, HeldLock]) -> Steps[None]:
    by_queue: dict[str, dict[bytes, bytes]] = {}
    for name in names:
        if (parts := split_key(namespace, name)) is not None:
            by_queue.setdefault(parts[0], {})[name] = parts[2]
    for queue, lock_keys in by_queue.items():
        items = [*lock_keys.items()]
        for first in range(0, len(items), LOOKED_AT_ONCE):
            some = items[first : first + LOOKED_AT_ONCE]
            held = yield requests.locks_look(queue_keys(namespace, queue), [key for _, key in some])
            found.update((name, _held(queue, key, lock)) for (name, key), lock in zip(some, held, strict=True) if lock)


def _held(queue: str, lock_key: bytes, lock: requests.Lock) -> HeldLock:
    task, _, key = lock_key.decode("utf-8", "replace").partition(":")
    return HeldLock(queue, unquote(task), key, uid_string(lock.uid.ljust(16, b"\0")), lock.state, lock.expires_in)


def _scheduled(keys: QueueKeys, uid: bytes, due: float, raw: bytes) -> ScheduledJob:
    when = _time(due) or datetime.fromtimestamp(0, UTC)
    try:
        message = Message(raw)
        error = error_of(message)
    except ValueError:
        return ScheduledJob(uid_string(uid), keys.queue, UNREADABLE, "scheduled", when, 0, None, None, "")
    state = "retrying" if message.attempt > 1 else "scheduled"
    return ScheduledJob(
        uid_string(uid), keys.queue, message.task, state, when, message.attempt, message.job_id or None, _lock(message),
        _told(error),
    )  # fmt: skip


def _lock(message: Message) -> str | None:
    return message.lock_key.partition(b":")[2].decode("utf-8", "replace") if message.lock_key else None


def _told(error: dict[str, Any]) -> str:
    return ": ".join(str(error[name]) for name in ("type", "text") if error.get(name))


def _time(ms: float | None) -> datetime | None:
    if ms is None:
        return None
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # of bytes that only look like a message
        return None
