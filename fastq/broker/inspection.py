"""What a queue holds, and all keys of a namespace: for supervisors, operators and proofs. No I/O, as in `requests`."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from fastq.broker.requests import NOW, Arg, Request
from fastq.broker.scripts import load
from fastq.keys import GROUP, QueueKeys, queues_key

ENTRIES_LOOKED_INTO = 50  # up to 3,200 jobs, in some 2 ms
KEYS_AT_ONCE = 1000  # looked at, or deleted, by one call


class Contents(NamedTuple):
    """The numbers of a queue at one moment. Entries are frames of its three streams, pending those handed out."""

    entries: int
    pending: int
    scheduled: int
    dead: int
    workers: int


def contents(keys: QueueKeys) -> Request[Contents]:
    """Count what a queue holds. For a queue that a worker has joined before: without its group the server refuses."""
    streams = (keys.stream, keys.front, keys.suspects)
    counts = ((b"ZCARD", key) for key in (keys.scheduled, keys.dead, keys.consumers))
    commands = (*((b"XLEN", key) for key in streams), *((b"XPENDING", key, GROUP) for key in streams), *counts)

    def read(replies: Sequence[Any]) -> Contents:
        return Contents(sum(replies[:3]), sum(reply[0] for reply in replies[3:6]), *replies[6:])

    return Request(read, commands=commands)


class Counts(NamedTuple):
    """What a queue holds, in jobs; `counters` are those of all its past."""

    gate: str  # "" | "cancelled" | "paused"
    in_hand: int
    scheduled: int
    dead: int
    workers: int
    counters: dict[str, int]


def counts(keys: QueueKeys) -> Request[Counts]:
    """Count the jobs of a queue, also of one that nobody has used yet."""

    def read(reply: Any) -> Counts:
        _, gate, in_hand, scheduled, dead, live, flat = reply
        counters = {name.decode(): int(by) for name, by in zip(flat[::2], flat[1::2], strict=True)}
        return Counts(gate.decode(), in_hand, scheduled, dead, live, counters)

    return Request(read, (ENTRIES_LOOKED_INTO,), load("counts"), keys.prefix)


class Pace(NamedTuple):
    """How a queue keeps up: the server's time, ms that its oldest waiting job waits (-1: none), and its counters "at" a time
    before."""

    now_ms: int
    oldest_ms: int
    past: dict[str, int]


def pace(keys: QueueKeys, *, minutes: int = 5, now: Arg = NOW) -> Request[Pace]:
    """Ask how long jobs wait, and for the counters of some minutes ago; these are empty if no worker was there."""

    def read(reply: Any) -> Pace:
        _, now_ms, oldest, flat = reply
        return Pace(now_ms, oldest, {name.decode(): int(n) for name, n in zip(flat[::2], flat[1::2], strict=True)})

    return Request(read, (now, minutes), load("pace"), keys.prefix)


class Holding(NamedTuple):
    """What one consumer of a queue has in hand, in stream entries; `idle` are the seconds since it last read or acknowledged."""

    worker: bytes
    entries: int
    idle: float


def consumers(keys: QueueKeys) -> Request[list[Holding]]:
    """Who has read from the streams of a queue, by name."""
    commands = tuple((b"XINFO", b"CONSUMERS", key, GROUP) for key in (keys.stream, keys.front, keys.suspects))

    def read(replies: Sequence[Any]) -> list[Holding]:
        found: dict[bytes, Holding] = {}
        for reply in replies:
            if not isinstance(reply, list):
                continue  # nobody has read from this stream yet
            for flat in reply:
                one = dict(zip(flat[::2], flat[1::2], strict=True))
                worker, entries, idle = one[b"name"], one[b"pending"], one[b"idle"] / 1000
                known = found.get(worker, Holding(worker, 0, idle))
                found[worker] = Holding(worker, known.entries + entries, min(known.idle, idle))
        return [found[name] for name in sorted(found)]

    return Request(read, commands=commands, tolerant=True)


def scheduled_page(keys: QueueKeys, *, offset: int, limit: int) -> Request[list[tuple[bytes, float]]]:
    """A page of scheduled and retrying jobs, the next one first. Reads: (uid, when it is due in ms) of each."""
    command = (b"ZRANGE", keys.scheduled, offset, offset + limit - 1, b"WITHSCORES")
    return Request(lambda flat: [(uid, float(ms)) for uid, ms in zip(flat[::2], flat[1::2], strict=True)], commands=(command,))


def bodies(keys: QueueKeys, uids: Sequence[bytes]) -> Request[list[bytes | None]]:
    """Messages of scheduled or dead jobs; None for one that is gone."""
    return Request(list, commands=((b"HMGET", keys.jobs, *uids),))


def keys_like(pattern: str, cursor: int, count: int, kind: str = "") -> Request[tuple[int, list[bytes]]]:
    """Some keys of a pattern, of `count` that are looked at, and the cursor of the next part, which is 0 after the last."""
    of_kind: tuple[Arg, ...] = (b"TYPE", kind) if kind else ()
    command = (b"SCAN", cursor, b"MATCH", pattern, b"COUNT", count, *of_kind)
    return Request(lambda reply: (int(reply[0]), list(reply[1])), commands=(command,))


# --- what should not be there


def recount(keys: QueueKeys, stream: str, after: bytes = b"", *, entries: int = 25) -> Request[tuple[int, bytes]]:
    """Count jobs that wait in "stream", "front" or "suspects". Reads: how many, and `after` for the next part (b"": no more)."""
    return Request(lambda reply: (int(reply[1]), bytes(reply[2])), (stream, after, entries), load("recount"), keys.prefix)


def correct_waiting(keys: QueueKeys, by: int) -> Request[None]:
    """Add to the counter of waiting jobs what it was found to be wrong by."""
    return Request(lambda reply: None, commands=((b"HINCRBY", keys.stats, b"waiting", by),), repeatable=False)


def counter(keys: QueueKeys, name: str) -> Request[int]:
    """One of a queue's counters."""
    return Request(lambda reply: int(reply or 0), commands=((b"HGET", keys.stats, name),))


def orphaned_locks(keys: QueueKeys, lock_keys: Sequence[bytes], *, release: bool) -> Request[list[bytes]]:
    """Which of these locks, at most 200, have no job any more; these are released if that is asked for."""
    args = (b"release" if release else b"look", *lock_keys)
    return Request(lambda reply: list(reply[1]), args, load("orphans"), keys.prefix)


def stray_progress(keys: QueueKeys, cursor: bytes, *, delete: bool) -> Request[tuple[bytes, int]]:
    """Progress of entries that are gone. Reads: the cursor of the next part (b"0": no more), and how many were found."""
    args = (b"delete" if delete else b"look", cursor)
    return Request(lambda reply: (bytes(reply[1]), int(reply[2])), args, load("strays"), keys.prefix)


def parked(keys: QueueKeys, lock_keys: Sequence[bytes]) -> Request[list[tuple[bool, bool]]]:
    """Of keys behind which jobs are parked: whether the queue knows of it, and whether the lock is held."""
    commands = [c for key in lock_keys for c in ((b"SISMEMBER", keys.parking, key), (b"EXISTS", keys.unique(key)))]
    return Request(lambda r: [(bool(r[i]), bool(r[i + 1])) for i in range(0, len(r), 2)], commands=tuple(commands))


def note_parked(keys: QueueKeys, lock_keys: Sequence[bytes]) -> Request[None]:
    """Let ticks look after jobs that are parked behind these keys."""
    return Request(lambda reply: None, commands=((b"SADD", keys.parking, *lock_keys),))


def some_pending(keys: QueueKeys, cursor: bytes) -> Request[tuple[bytes, list[tuple[bytes, bytes]]]]:
    """Calls that wait to rerun: the cursor of the next part (b"0": no more), and holder uid and message of some."""
    command = (b"HSCAN", keys.pending, cursor, b"COUNT", 100)

    def read(reply: Any) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        flat = reply[1]
        return bytes(reply[0]), [(field[:16], message) for field, message in zip(flat[::2], flat[1::2], strict=True)]

    return Request(read, commands=(command,))


def ping() -> Request[None]:
    """Go there and back."""
    return Request(lambda reply: None, commands=((b"PING",),))


def memory() -> Request[tuple[int, int]]:
    """The bytes that the server uses, and those that it may use (0: no bound)."""

    def read(info: bytes) -> tuple[int, int]:
        fields = dict(line.split(":", 1) for line in info.decode("utf-8", "replace").splitlines() if ":" in line)
        return int(fields.get("used_memory", 0)), int(fields.get("maxmemory", 0))

    return Request(read, commands=((b"INFO", b"memory"),))


# --- whole queues and namespaces


def most_jobs(keys: QueueKeys) -> Request[int]:
    """As many jobs as may wait or be scheduled at the most: every frame counts as a full one."""
    commands = (*((b"XLEN", key) for key in (keys.stream, keys.front, keys.suspects)), (b"ZCARD", keys.scheduled))
    return Request(lambda replies: 64 * sum(replies[:3]) + int(replies[3]), commands=commands)


def beats(keys: QueueKeys) -> Request[list[tuple[bytes, float]]]:
    """The workers of a queue. Reads: the name of each, and the seconds since its last sign of life (below 0: it is fenced)."""
    commands = ((b"TIME",), (b"ZRANGE", keys.consumers, 0, -1, b"WITHSCORES"))

    def read(replies: Sequence[Any]) -> list[tuple[bytes, float]]:
        (seconds, micros), flat = replies
        now = int(seconds) + int(micros) / 1e6
        beats = ((name, float(ms) / 1000) for name, ms in zip(flat[::2], flat[1::2], strict=True))
        return [(name, max(0.0, now - beat) if beat > 0 else -1.0) for name, beat in beats]

    return Request(read, commands=commands)


def workers(keys: QueueKeys) -> Request[list[bytes]]:
    """The names of a queue's workers, also of those that are being taken out."""
    return Request(list, commands=((b"ZRANGE", keys.consumers, 0, -1),))


class Messages(NamedTuple):
    """Everything that stands in a queue, as it is; scheduled and dead with their time in ms."""

    frames: list[bytes]
    scheduled: list[tuple[bytes, float]]
    dead: list[tuple[bytes, float]]


def messages(keys: QueueKeys) -> Request[Messages]:
    """Read a whole queue, however large it is: for tests."""
    streams = ((b"XRANGE", key, b"-", b"+") for key in (keys.suspects, keys.front, keys.stream))
    scored = ((b"ZRANGE", key, 0, -1, b"WITHSCORES") for key in (keys.scheduled, keys.dead))

    def read(replies: Sequence[Any]) -> Messages:
        frames = [fields[1] for entries in replies[:3] for _, fields in entries if fields[0] == b"f"]
        bodies = dict(zip(replies[5][::2], replies[5][1::2], strict=True))
        scheduled, dead = (
            [(bodies[uid], float(ms)) for uid, ms in zip(flat[::2], flat[1::2], strict=True) if uid in bodies]
            for flat in replies[3:5]
        )
        return Messages(frames, scheduled, dead)

    return Request(read, commands=(*streams, *scored, (b"HGETALL", keys.jobs)))


def queues(namespace: str) -> Request[list[str]]:
    """The names of all queues that were ever used."""
    command = (b"ZRANGE", queues_key(namespace), 0, -1)
    return Request(lambda reply: [name.decode() for name in reply], commands=(command,))


def ttls(keys: Sequence[bytes]) -> Request[list[int]]:
    """How many ms each of these keys has to live; negative for one without an end."""
    return Request(lambda reply: list(reply) if len(keys) > 1 else [int(reply)], commands=tuple((b"PTTL", key) for key in keys))


def expire(ends: Sequence[tuple[bytes, int]]) -> Request[None]:
    """Let each key live so many ms; 0 or less deletes it."""
    return Request(lambda reply: None, commands=tuple((b"PEXPIRE", key, ms) for key, ms in ends))


def some_keys(namespace: str, cursor: int = 0) -> Request[tuple[int, list[bytes]]]:
    """A part of a namespace's keys and the cursor of the next part, which is 0 after the last. A key may come twice."""
    command = (b"SCAN", cursor, b"MATCH", f"{namespace}:*".encode(), b"COUNT", KEYS_AT_ONCE)
    return Request(lambda reply: (int(reply[0]), list(reply[1])), commands=(command,))


def delete_keys(keys: Sequence[bytes]) -> Request[None]:
    """Delete keys of whatever kind, `KEYS_AT_ONCE` at the most."""
    return Request(lambda reply: None, commands=((b"UNLINK", *keys),))


def server_name() -> Request[str]:
    """What the server calls itself, as in "Redis 7.0.15" or "Valkey 9.1.0"."""

    def read(info: bytes) -> str:
        fields = dict(line.split(":", 1) for line in info.decode("utf-8", "replace").splitlines() if ":" in line)
        if valkey := fields.get("valkey_version"):
            return f"Valkey {valkey}"
        return f"Redis {fields.get('redis_version', '')}".strip()

    return Request(read, commands=((b"INFO", b"server"),))
