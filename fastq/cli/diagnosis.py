"""What `fastq doctor` looks for: each check is a few bounded reads, and says what it found and what to do.

The steps are generators that yield requests and get their answers. What is called wrong is wrong for certain at the time
of the look: anything that a job on its way could explain is not.
"""
from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Container, Generator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

from fastq.broker import inspection, requests
from fastq.broker.health import health
from fastq.cli.text import many
from fastq.codec import Message
from fastq.inspect import SCANNED_AT_ONCE, split_key
from fastq.keys import QueueKeys, queue_keys

T = TypeVar("T")
Steps: TypeAlias = Generator["requests.Request[Any]", Any, T]

LEAST = {"Redis": (7, 0), "Valkey": (7, 2)}
SLOW = 0.010  # seconds there and back
PINGS = 20
FULL = 0.8  # of the memory
MOST_KEYS = 1_000_000  # that are looked at
MOST_PARTS = 200  # of a hash, 100 entries each
MOST_RECOUNTED = 10_000  # parts of the streams, 25 frames each
SETTLING = 1.2  # seconds in which what was fetched is counted
AT_ONCE = 200

Level: TypeAlias = Literal["ok", "note", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found: where (a queue, or "server"), and what to do about it. `fixed`: it has been put right."""

    level: Level
    where: str
    what: str
    advice: str = ""
    fixed: bool = False


# --- the server


def look_at_server() -> Steps[list[Finding]]:
    """Version, what it does with its data, memory, and how far it is."""
    name = yield inspection.server_name()
    found = [_version(name)]
    for warning in (yield health()):
        what, _, advice = warning.rpartition("; ")
        found.append(Finding("wrong", "server", what or warning, advice))
    used, most = yield inspection.memory()
    if most and used > FULL * most:
        advice = "raise maxmemory, or let jobs and results live shorter: when it is full, enqueues are refused"
        found.append(Finding("wrong", "server", f"{used / most:.0%} of its memory is in use", advice))
    times = []
    for _ in range(PINGS):
        begun = time.perf_counter()
        yield inspection.ping()
        times.append(time.perf_counter() - begun)
    middle = statistics.median(times)
    what = f"a call takes {1000 * middle:.2g} ms there and back, {1000 * max(times):.2g} ms at the most"
    advice = "put programs and server nearer to each other, or see SLOWLOG for what holds it up" if middle > SLOW else ""
    found.append(Finding("wrong" if advice else "ok", "server", what, advice))
    return found


def _version(name: str) -> Finding:
    kind, _, version = name.partition(" ")
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    least = LEAST.get(kind, (7, 0))
    if numbers and numbers < least:
        return Finding("wrong", "server", f"it is {name}", f"use {kind} {least[0]}.{least[1]} or later")
    return Finding("ok", "server", f"it is {name}")


# --- a queue


def look_at_queue(keys: QueueKeys, lease: float, fix: bool, pause: Callable[[float], None]) -> Steps[list[Finding]]:
    """What is wrong with one queue; `fix` puts right what can be without a risk."""
    found: list[Finding] = []
    counts = yield inspection.counts(keys)
    waiting = counts.counters.get("waiting", 0)
    if counts.gate == "paused":
        found.append(Finding("note", keys.queue, "it is paused", "fastq resume lets its jobs start"))
    if waiting > 0 and not counts.workers:
        what = f"{many(waiting, 'job')} waiting, and no worker is there"
        found.append(Finding("wrong", keys.queue, what, "start one: fastq worker"))
    found += yield from _silent(keys, lease)
    found += yield from _progress(keys, fix)
    found += yield from _pending(keys)
    found += yield from _waiting(keys, fix, pause)
    return found


def _silent(keys: QueueKeys, lease: float) -> Steps[list[Finding]]:
    live = {name for name, age in (yield inspection.beats(keys)) if 0 <= age <= lease}
    gone = [one for one in (yield inspection.consumers(keys)) if one.worker not in live and one.entries and one.idle > lease]
    if not gone:
        return []
    entries = sum(one.entries for one in gone)
    advice = "a worker that serves the queue takes it over within a lease" + ("" if live else ": start one")
    what = f"{many(entries, 'frame')} in the hands of {many(len(gone), 'worker')} without a sign of life"
    return [Finding("wrong", keys.queue, what, advice)]


def _progress(keys: QueueKeys, fix: bool) -> Steps[list[Finding]]:
    strays, cursor = 0, b"0"
    for _ in range(MOST_PARTS):
        cursor, n = yield inspection.stray_progress(keys, cursor, delete=fix)
        strays += n
        if cursor == b"0":
            break
    if not strays:
        return []
    what = f"{many(strays, 'note')} of progress in entries that are gone"
    return [Finding("wrong", keys.queue, what, "harmless; --fix deletes them", fixed=fix)]


def _pending(keys: QueueKeys) -> Steps[list[Finding]]:
    """Calls left to a job whose lock nobody holds: ticks enter them a day after they came."""
    alone, cursor = 0, b"0"
    for _ in range(MOST_PARTS):
        cursor, some = yield inspection.some_pending(keys, cursor)
        lock_keys = [Message(message).lock_key for _, message in some if len(message) >= 48]
        for first in range(0, len(lock_keys), AT_ONCE):
            alone += (yield requests.locks_look(keys, lock_keys[first : first + AT_ONCE])).count(None)
        if cursor == b"0":
            break
    if not alone:
        return []
    what = f"{many(alone, 'call')} left to rerun behind a job that has lost its lock"
    return [Finding("note", keys.queue, what, "they run when that job ends, or a day after they came, if a worker is there")]


def _waiting(keys: QueueKeys, fix: bool, pause: Callable[[float], None]) -> Steps[list[Finding]]:
    """Jobs come and go while they are counted: the counter is wrong only if two looks find the same difference."""
    first = yield from _difference(keys)
    if not first:
        return []
    pause(SETTLING)
    if (yield from _difference(keys)) != first:
        return []
    if fix:
        yield inspection.correct_waiting(keys, first)
    what = f"the counter of waiting jobs is wrong by {-first:+,}"
    return [Finding("wrong", keys.queue, what, "max_queue and the numbers shown rely on it; --fix corrects it", fixed=fix)]


def _difference(keys: QueueKeys) -> Steps[int]:
    """What the counter of waiting jobs lacks; 0 also where that cannot be told, for jobs came and went meanwhile."""
    before = yield inspection.counter(keys, "waiting")
    jobs = parts = 0
    for stream in ("stream", "front", "suspects"):
        after = b""
        while True:
            n, after = yield inspection.recount(keys, stream, after)
            jobs += n
            parts += 1
            if not after:
                break
            if parts > MOST_RECOUNTED:
                return 0
    if (yield inspection.counter(keys, "waiting")) != before:
        return 0
    return int(jobs - before)


# --- locks and parked jobs of all queues, in one pass over the keys


def look_at_locks(namespace: str, queues: Container[str], fix: bool) -> Steps[list[Finding]]:
    """Locks without a job, and parked jobs of which their queue does not know or whose lock is gone; in these queues."""
    orphans: dict[str, int] = {}
    unknown: dict[str, int] = {}
    unlocked: dict[str, int] = {}
    cursor = scanned = 0
    while True:
        cursor, names = yield inspection.keys_like(f"{namespace}:{{*}}:*", cursor, SCANNED_AT_ONCE)
        scanned += SCANNED_AT_ONCE
        for (queue, kind), rests in _sorted(namespace, names).items():
            if queue not in queues:
                continue
            keys = queue_keys(namespace, queue)
            for first in range(0, len(rests), AT_ONCE):
                some = rests[first : first + AT_ONCE]
                if kind == "unique":
                    gone = yield inspection.orphaned_locks(keys, some, release=fix)
                    _add(orphans, queue, len(gone))
                else:
                    states = yield inspection.parked(keys, some)
                    lost = [key for key, (known, _) in zip(some, states, strict=True) if not known]
                    if lost and fix:
                        yield inspection.note_parked(keys, lost)
                    _add(unknown, queue, len(lost))
                    _add(unlocked, queue, sum(known and not held for known, held in states))
        if cursor == 0 or scanned >= MOST_KEYS:
            break
    found = []
    for queue, n in orphans.items():
        what = f"{many(n, 'lock')} without a job: its like cannot be enqueued until it expires"
        found.append(Finding("wrong", queue, what, "--fix releases them", fix))
    for queue, n in unknown.items():
        what = f"jobs that nobody looks after are parked behind {many(n, 'key')}"
        found.append(Finding("wrong", queue, what, "--fix has the workers do so", fix))
    for queue, n in unlocked.items():
        what = f"jobs are parked behind {many(n, 'key')} whose lock is gone"
        found.append(Finding("note", queue, what, "a worker lets them in within seconds"))
    if cursor:
        found.append(Finding("note", "server", f"only the first {scanned:,} keys were looked at for locks without a job"))
    return found


def _sorted(namespace: str, names: list[bytes]) -> dict[tuple[str, str], list[bytes]]:
    found: dict[tuple[str, str], list[bytes]] = {}
    for name in names:
        parts = split_key(namespace, name)
        if parts is not None and parts[1] in ("unique", "parked"):
            found.setdefault(parts[:2], []).append(parts[2])
    return found


def _add(to: dict[str, int], queue: str, n: int) -> None:
    if n:
        to[queue] = to.get(queue, 0) + n
