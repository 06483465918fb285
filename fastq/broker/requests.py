"""What is asked of Redis, and how its answer is read. Nothing here does I/O: the sync and the async side share all of it.

A `Request` is one script call, or a few plain commands sent together. `read` turns the answer into what the caller wants.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Generic, NamedTuple, TypeVar

from fastq.broker.scripts import Script, Status, load
from fastq.errors import BrokerError, QueueFull
from fastq.keys import GROUP, QueueKeys, queues_key
from fastq_ext.resp import Command, pack_command

T = TypeVar("T")
Arg = bytes | str | int | float

WAITING = b"W"  # the state byte of the lock of a job that waits
_STATES = {b"W": "waiting", b"S": "scheduled", b"R": "running", b"E": "ended", b"": "waiting"}


class _Now(bytes):
    """Lets a script take the server's time."""


NOW: Arg = _Now()  # a shifted clock (the test kit's) puts a time in its place
LANE, NUMBER = b"", b"0"  # the first two arguments of a call without a lane


class WorkerFenced(BrokerError):
    """The queue no longer knows this worker: what it holds has been given to others."""


@dataclass(slots=True)
class Request(Generic[T]):
    """One call. `repeatable`: sending it again after a lost reply changes nothing that it has not changed already.

    `blocks`: seconds that the server may take to answer. `tolerant`: errors among several replies are for `read` to look at.
    `packed`: what `pack` gives, where whoever made the request had it ready.
    """

    read: Callable[[Any], T]
    args: tuple[Arg, ...] = ()
    script: Script | None = None
    prefix: bytes = b""
    commands: tuple[tuple[Arg, ...], ...] = ()
    laned: bool = False
    lane: tuple[bytes, int] | None = None  # of the call that this one repeats; None: it is a new one
    repeatable: bool = True
    blocks: float = 0.0
    tolerant: bool = False
    packed: bytes = b""

    @property
    def replies(self) -> int:
        """How many replies come back."""
        return len(self.commands) or 1

    def pack(self, lane: bytes = LANE, number: int = 0, *, by_source: bool = False) -> bytes:
        """The bytes to send. `by_source` sends the script itself, to a server that does not have it."""
        if self.packed and not by_source:
            return self.packed
        if self.script is None:
            return b"".join(map(pack_command, self.commands))
        args = (lane, number, *self.args) if self.laned else self.args
        how, what = (b"EVAL", self.script.source) if by_source else (b"EVALSHA", self.script.sha)
        return pack_command((how, what, b"1", self.prefix, *args))


# --- producers


@dataclass(frozen=True, slots=True)
class Refusal:
    """One job of an enqueue that did not get in, or that met its like: by its place in the call."""

    index: int
    kind: str  # "duplicate" | "conflict"
    uid: bytes
    state: str  # of the holder: "waiting" | "scheduled" | "running" | "ended", as far as its lock tells
    expires_in: float  # seconds
    outcome: str = "raise"


def plain_frame(frame: bytes, count: int) -> list[Arg]:
    """A group of plain jobs, ready to be added."""
    return [b"F%d" % count, frame]


def unique_frame(frame: bytes, count: int, ttl_ms: int, values: bytes, keys: Sequence[bytes]) -> list[Arg]:
    """A group of jobs with a lock each. `values`: uid and state byte of each; `keys`: whole Redis keys."""
    return [b"U%d" % count, frame, ttl_ms, values, *keys]


def single(
    message: bytes,
    *,
    due_ms: int = 0,
    lock_key: bytes = b"",
    lock_ttl_ms: int = 0,
    id_key: bytes = b"",
    id_ttl_ms: int = 0,
    track_ms: int = 0,
    max_wait_ms: int = 0,
) -> list[Arg]:
    """A group of one job of any kind. `lock_key` and `id_key` are whole Redis keys; TTLs count from now.

    `max_wait_ms` bounds how long calls that replace each other can put the job off, from the first of them.
    """
    return [b"G", message, due_ms or b"", lock_key, lock_ttl_ms, id_key, id_ttl_ms, track_ms or b"", max_wait_ms or b""]


def enqueue(
    keys: QueueKeys, groups: Iterable[Sequence[Arg]], jobs: int, *, laned: bool, max_queue: int | None = None, now: Arg = NOW
) -> Request[list[Refusal]]:
    """Add jobs. `laned` makes the call repeatable; without it a lost reply leaves the outcome unknown. Reads: QueueFull."""
    bound = max_queue or 0
    args: list[Arg] = [now, jobs, bound] if laned else [LANE, NUMBER, now, jobs, bound]
    for group in groups:
        args += group

    read = partial(_read_enqueue, keys, max_queue)
    return Request(read, tuple(args), load("enqueue"), keys.prefix, laned=laned, repeatable=laned)


class PlainEnqueue:
    """The enqueue of one plain job into a queue without a bound, of which all but the message is made once."""

    __slots__ = ("_args", "_command", "_prefix", "_read", "_script")

    def __init__(self, keys: QueueKeys) -> None:
        model = enqueue(keys, (plain_frame(b"", 1),), 1, laned=False)
        self._args = model.args[:-1]  # the message is the last
        self._script, self._prefix, self._read = load("enqueue"), model.prefix, model.read
        self._command = Command((b"EVALSHA", self._script.sha, b"1", self._prefix, *self._args), 1)

    def request(self, message: bytes) -> Request[list[Refusal]]:
        """The call that adds this job."""
        args, packed = (*self._args, message), self._command.pack(message)
        return Request(self._read, args, self._script, self._prefix, repeatable=False, packed=packed)


@lru_cache(maxsize=1024)
def plain_enqueue(keys: QueueKeys) -> PlainEnqueue:
    """That of a queue, made once: `using(...)` makes a new route for each of its calls."""
    return PlainEnqueue(keys)


def _read_enqueue(keys: QueueKeys, max_queue: int | None, reply: Any) -> list[Refusal]:
    status = reply[0]
    if status == Status.OK:
        return _refusals(reply[1]) if reply[1] else []
    if status == Status.FULL:
        raise QueueFull(
            f"queue {keys.queue!r} holds {reply[1]} jobs, its max_queue is {max_queue}: nothing was enqueued;"
            " try again later",
            queue=keys.queue,
            waiting=reply[1],
        )
    raise BrokerError(f"enqueue was answered with status {status}: a later call of the same producer came first")


def _refusals(flat: list[Any]) -> list[Refusal]:
    return [
        Refusal(index, kind.decode(), uid, _STATES.get(state, "waiting"), max(ms, 0) / 1000, outcome.decode())
        for index, kind, uid, state, ms, outcome in zip(*(flat[i::6] for i in range(6)), strict=True)
    ]


def note_queue(keys: QueueKeys, now_ms: int) -> Request[None]:
    """List the queue among the namespace's."""
    command = (b"ZADD", queues_key(keys.namespace), now_ms, keys.queue)
    return Request(lambda reply: None, commands=(command,))


# --- locks


class Lock(NamedTuple):
    """A lock as it stands."""

    uid: bytes
    state: str
    expires_in: float


def locks_look(keys: QueueKeys, lock_keys: Sequence[bytes]) -> Request[list[Lock | None]]:
    """Who holds locks, at most 200. `lock_keys` are what messages carry."""

    def read(reply: Any) -> list[Lock | None]:
        return [Lock(lock[0][:16], lock[2].decode(), max(lock[1], 0) / 1000) if lock else None for lock in reply[1]]

    return Request(read, tuple(lock_keys), load("locks"), keys.prefix)


def locks_page(keys: QueueKeys, task_prefix: bytes, cursor: int) -> Request[tuple[int, list[bytes]]]:
    """Some lock keys of a queue that begin so, and the cursor of the next part, which is 0 after the last. One may come twice."""
    prefix = keys.unique(b"")
    pattern = b"".join(b"\\" + bytes((c,)) if c in b"*?[]^\\" else bytes((c,)) for c in prefix + task_prefix) + b"*"
    command = (b"SCAN", cursor, b"MATCH", pattern, b"COUNT", 1000, b"TYPE", b"string")

    def read(reply: Any) -> tuple[int, list[bytes]]:
        return int(reply[0]), [key.removeprefix(prefix) for key in reply[1]]

    return Request(read, commands=(command,))


def lock_counts(keys: QueueKeys, task: str) -> Request[list[int]]:
    """How often locks of a task made a difference. Reads: calls refused, skipped, replaced and left to rerun, and locks lost."""
    names = ("refused", "skipped", "replaced", "rerun", "locks_lost")
    command: tuple[Arg, ...] = (b"HMGET", keys.stats, *(f"{name}:{task}" for name in names))
    return Request(lambda reply: [int(count or 0) for count in reply], commands=(command,))


def locks_release(keys: QueueKeys, lock_key: bytes) -> Request[bool]:
    """Delete a lock by hand; whether there was one."""
    return Request(lambda replies: bool(replies), commands=((b"DEL", keys.unique(lock_key)),))


# --- single jobs


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a job. `state` is "" when there is no record; `message` is that of a scheduled, retrying or dead one."""

    uid: bytes
    state: str
    message: bytes


def status(keys: QueueKeys, uid: bytes, job_id: str = "", lock_key: bytes = b"") -> Request[Known]:
    """What is known of a job, by its uid or (uid b"") by its explicit id; `lock_key` is what its message carries."""
    args = (uid, job_id, lock_key)
    return Request(lambda reply: Known(reply[1], reply[2].decode(), reply[3]), args, load("status"), keys.prefix)


def cancel(keys: QueueKeys, uid: bytes, job_id: str = "", *, now: Arg = NOW) -> Request[bool]:
    """Ask that a job does not run. Reads: whether it is certain that it will not start any more."""
    return Request(lambda reply: reply[0] == Status.OK and bool(reply[1]), (uid, job_id, now), load("cancel"), keys.prefix)


@dataclass(frozen=True, slots=True)
class Kept:
    """What a result key holds: an encoded value, or the final state of a job that left none."""

    value: bytes | None
    state: str


def result(keys: QueueKeys, uid: bytes, *, seconds: float) -> Request[Kept | None]:
    """Wait up to so many seconds for the result of a job; 0 only looks."""
    block: tuple[Arg, ...] = (b"BLOCK", max(1, round(seconds * 1000))) if seconds > 0 else ()

    def read(reply: Any) -> Kept | None:
        if not reply:
            return None
        kind, value = reply[0][1][0][1][:2]
        return Kept(value or None, "succeeded") if kind == b"r" else Kept(None, value.decode())

    command: tuple[Arg, ...] = (b"XREAD", b"COUNT", 1, *block, b"STREAMS", keys.result(uid), b"0")
    # A wait that was cut off is not begun anew by the client: whoever waits knows how long it still may.
    return Request(read, commands=(command,), blocks=seconds, repeatable=not seconds)


# --- dead jobs and whole queues

Body = tuple[bytes | None, bytes | None]


def dead_page(keys: QueueKeys, *, offset: int, limit: int) -> Request[list[tuple[bytes, float]]]:
    """A page of dead jobs, the latest first. Reads: (uid, when it died in ms) of each."""
    command = (b"ZRANGE", keys.dead, offset, offset + limit - 1, b"REV", b"WITHSCORES")

    def read(reply: list[bytes]) -> list[tuple[bytes, float]]:
        return [(reply[i], float(reply[i + 1])) for i in range(0, len(reply), 2)]

    return Request(read, commands=(command,))


def dead_bodies(keys: QueueKeys, uids: Sequence[bytes]) -> Request[list[Body]]:
    """Messages of dead jobs, and why they died where a script found them dead; (None, None) for one that is gone."""
    command = (b"HMGET", keys.jobs, *(field for uid in uids for field in (uid, uid + b"!")))
    return Request(lambda reply: list(zip(reply[::2], reply[1::2], strict=True)), commands=(command,))


def dead_one(keys: QueueKeys, uid: bytes) -> Request[tuple[float, Body] | None]:
    """One dead job: when it died in ms, its message, and why. Reads: None if it is not dead."""
    commands = ((b"ZSCORE", keys.dead, uid), (b"HMGET", keys.jobs, uid, uid + b"!"))

    def read(replies: list[Any]) -> tuple[float, Body] | None:
        died, (message, why) = replies
        return (float(died), (message, why)) if died is not None else None

    return Request(read, commands=commands)


def dead_count(keys: QueueKeys) -> Request[int]:
    """How many jobs are dead."""
    return Request(int, commands=((b"ZCARD", keys.dead),))


def replay(keys: QueueKeys, uids: Sequence[bytes], *, now: Arg = NOW) -> Request[list[int]]:
    """Enqueue dead jobs again, at most 200. Reads: for each 1 replayed, 0 not dead, 2 its lock is held, 3 its id is in use.

    Fewer answers than jobs: the others are for the next call.
    """
    return Request(lambda reply: list(reply[1]), (now, *uids), load("replay"), keys.prefix)


def delete(keys: QueueKeys, uids: Sequence[bytes], *, now: Arg = NOW) -> Request[tuple[int, int]]:
    """Delete dead jobs, at most 200. Reads: how many were deleted, and how many looked at: the others are for later."""
    return Request(lambda reply: (int(reply[1]), int(reply[2])), (now, *uids), load("delete"), keys.prefix)


def purge(keys: QueueKeys, *, limit: int = 500, now: Arg = NOW) -> Request[tuple[int, bool]]:
    """Delete some of the jobs that wait or are scheduled. Reads: how many, and whether to call again."""
    return Request(lambda reply: (int(reply[1]), bool(reply[2])), (now, limit), load("purge"), keys.prefix)


def pause(keys: QueueKeys) -> Request[bool]:
    """Start nothing any more. Reads: whether that changed anything."""
    return Request(lambda reply: bool(reply[1]), (b"pause",), load("gate"), keys.prefix)


def resume(keys: QueueKeys) -> Request[bool]:
    """Start jobs again. Reads: whether that changed anything."""
    return Request(lambda reply: bool(reply[1]), (b"resume",), load("gate"), keys.prefix)


# --- workers


def join(keys: QueueKeys, worker: bytes, now: Arg = NOW) -> Request[int]:
    """Enter a worker. Reads: jobs added anew because the group had been lost."""
    return Request(lambda reply: int(reply[1]), (worker, now), load("join"), keys.prefix)


def beat(keys: QueueKeys, workers: Sequence[bytes], now: Arg = NOW) -> Request[list[bool]]:
    """Tell that workers live. Reads: for each whether the queue still knows it."""
    return Request(lambda reply: [bool(known) for known in reply[1]], (now, *workers), load("beat"), keys.prefix)


def leave(
    keys: QueueKeys, worker: bytes, *, died: bool, limit: int = 200, max_crashes: int = 3, now: Arg = NOW
) -> Request[tuple[int, bool]]:
    """Take a worker out and bring back what it holds. Reads: jobs brought back, and whether to call again."""
    args = (worker, now, int(died), limit, max_crashes)
    return Request(lambda reply: (int(reply[1]), bool(reply[2])), args, load("leave"), keys.prefix)


class Tick(NamedTuple):
    """What a tick did."""

    due_in: float | None  # seconds until the next scheduled job
    promoted: int
    reclaimed: int
    lost: int
    more: bool
    gate: str  # "" | "cancelled" | "paused"
    cancelled: list[bytes]  # uids of jobs that are asked to stop


def tick(
    keys: QueueKeys,
    worker: bytes,
    *,
    lease_ms: int,
    limit: int,
    max_crashes: int,
    dead_jobs: int,
    dead_bytes: int,
    dead_ms: int,
    now: Arg = NOW,
) -> Request[Tick]:
    """Promote, judge, prune. Reads: WorkerFenced. A repeat after a lost reply only looks again."""

    def read(reply: Any) -> Tick:
        _known(reply, keys, worker)
        _, due, promoted, reclaimed, lost, more, gate, cancelled = reply
        return Tick(None if due < 0 else due / 1000, promoted, reclaimed, lost, bool(more), gate.decode(), cancelled)

    args = (worker, now, lease_ms, limit, max_crashes, dead_jobs, dead_bytes, dead_ms)
    return Request(read, args, load("tick"), keys.prefix)


class Asked(NamedTuple):
    """A job that asks to start: its stream, entry, place in it, and its message up to the payload."""

    stream: bytes
    entry_id: bytes
    place: int
    head: bytes


def start(
    keys: QueueKeys,
    worker: bytes,
    number: int,
    jobs: Sequence[Asked],
    *,
    track_ms: int,
    lease_ms: int,
    now: Arg = NOW,
) -> Request[list[tuple[str, bytes | None]]]:
    """Ask whether jobs may start. Reads: for each a letter (lua/start.lua) and, for "n", its message with other arguments.

    Reads: WorkerFenced.
    """

    def read(reply: Any) -> list[tuple[str, bytes | None]]:
        _known(reply, keys, worker)
        if reply[0] == Status.STALE:
            raise BrokerError(f"start call {number} came after a later one")
        messages = iter(reply[2])
        return [(letter, next(messages) if letter == "n" else None) for letter in reply[1].decode()]

    args = (worker, number, now, track_ms, lease_ms, *(part for job in jobs for part in job))
    return Request(read, args, load("start"), keys.prefix)


def settle(keys: QueueKeys, worker: bytes, number: int, args: Sequence[Arg], *, now: Arg = NOW) -> Request[int]:
    """End the turns of a batch. `args`: jobs handed out, then the sections of lua/settle.lua. Reads: locks lost; WorkerFenced."""

    def read(reply: Any) -> int:
        _known(reply, keys, worker)
        if reply[0] == Status.STALE:
            raise BrokerError(f"settle call {number} came after a later one")
        return int(reply[1])

    return Request(read, (worker, number, now, *args), load("settle"), keys.prefix)


Entry = tuple[bytes, list[bytes] | None]  # entry id, fields (None: the body is gone)


class Fetched(NamedTuple):
    """What a read brought: entries of each stream, and whether jobs have to ask before they start."""

    front: list[Entry]
    stream: list[Entry]
    suspects: list[Entry]
    gate: str  # "" | "cancelled" | "paused"


def fetch(keys: QueueKeys, worker: bytes, *, entries: int, suspects: bool) -> Request[Fetched]:
    """Read without waiting: the front, the stream and, if one may be held, one suspect."""
    head = (b"XREADGROUP", b"GROUP", GROUP, worker, b"COUNT")
    commands: list[tuple[Arg, ...]] = [
        (*head, entries, b"STREAMS", keys.front, b">"),
        (*head, entries, b"STREAMS", keys.stream, b">"),
        (b"GET", keys.gate),
    ]
    if suspects:
        commands.append((*head, 1, b"STREAMS", keys.suspects, b">"))

    def read(replies: list[Any]) -> Fetched:
        found = [_entries(reply) for reply in (replies[0], replies[1], *replies[3:])]
        return Fetched(found[0], found[1], found[2] if suspects else [], (replies[2] or b"").decode())

    return Request(read, commands=tuple(commands), repeatable=False)


def gate(keys: QueueKeys) -> Request[str]:
    """Whether the queue is paused: "" | "cancelled" | "paused"."""
    return Request(lambda reply: (reply or b"").decode(), commands=((b"GET", keys.gate),))


def wait(
    queues: Sequence[QueueKeys], worker: bytes, *, entries: int, seconds: float
) -> Request[tuple[dict[bytes, list[Entry]], list[str]]]:
    """Wait until a job comes to the front or the stream of any of these queues.

    Reads: entries by stream key, and the gate of each queue.
    """
    streams = [key for keys in queues for key in (keys.front, keys.stream)]
    head = (b"XREADGROUP", b"GROUP", GROUP, worker, b"COUNT", entries, b"BLOCK", max(1, round(seconds * 1000)), b"STREAMS")
    command: tuple[Arg, ...] = (*head, *streams, *(b">" for _ in streams))
    gates = ((b"GET", keys.gate) for keys in queues)

    def read(replies: list[Any]) -> tuple[dict[bytes, list[Entry]], list[str]]:
        return dict(replies[0] or ()), [(gate or b"").decode() for gate in replies[1:]]

    return Request(read, commands=(command, *gates), repeatable=False, blocks=seconds)


def held(keys: QueueKeys, worker: bytes, *, after: bytes = b"-", limit: int = 1000) -> Request[list[tuple[int, bytes]]]:
    """What the group says this worker holds. Reads: (stream 0, 1, 2; entry id) for each."""
    streams = (keys.stream, keys.front, keys.suspects)
    commands = tuple((b"XPENDING", key, GROUP, after, b"+", limit, worker) for key in streams)

    def read(replies: list[Any]) -> list[tuple[int, bytes]]:
        return [(place, entry[0]) for place, entries in enumerate(replies) for entry in entries]

    return Request(read, commands=commands)


def entry_bodies(stream: bytes, ids: Sequence[bytes]) -> Request[list[Entry]]:
    """The bodies of known entries; None for one that is gone."""

    def read(replies: list[Any]) -> list[Entry]:
        one = [replies] if len(ids) == 1 else replies
        return [(entry_id, reply[0][1] if reply else None) for entry_id, reply in zip(ids, one, strict=True)]

    return Request(read, commands=tuple((b"XRANGE", stream, i, i) for i in ids))


def _entries(reply: Any) -> list[Entry]:
    return reply[0][1] if reply else []


def _known(reply: Any, keys: QueueKeys, worker: bytes) -> None:
    if reply[0] == Status.FENCED:
        raise WorkerFenced(f"queue {keys.queue!r} no longer knows worker {worker.decode()}: it was taken for dead")
