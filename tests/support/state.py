"""The whole state of a queue in words, for tests to compare: seed, run, compare all of it."""

import math
from collections.abc import Mapping
from typing import Any

import redis

from fastq.codec import Frame, Message
from fastq.keys import QueueKeys
from tests.support.builders import label

STREAMS = ("stream", "front", "suspects")
State = dict[str, Any]


def snapshot(client: redis.Redis, keys: QueueKeys) -> State:
    """Everything that Redis holds of a queue, by label; parts in which there is nothing are left out.

    - stream, front, suspects: a text per entry: `"a b"` is a frame of two jobs, `"b/2"` one in its attempt 2, `"b*1"` one
      with 1 crash, `"?5"` bytes that are no message, `"(wake)"` an entry without jobs
    - pending: stream -> consumer -> entries that it was given (`"(gone)"`: without a body)
    - scheduled, dead: job -> ms · jobs: job -> message · why: job -> reason
    - locks, ids: key -> `"a W 60s"`, owner, state and the seconds left, rounded up
    - records, results: job -> text · progress: entry -> bitmap, the first job first · stats: counter -> number
    - consumers: worker -> ms of its beat (-1: fenced) · calls, lanes: who -> number of the last call
    - any other key: its name -> its type
    """
    state: State = {}
    _streams(client, keys, state)
    for name in ("scheduled", "dead", "consumers", "cancelled"):
        rows = client.zrange(getattr(keys, name), 0, -1, withscores=True)
        name_of = bytes.decode if name == "consumers" else label
        state[name] = {name_of(member): int(score) for member, score in rows}
    bodies = client.hgetall(keys.jobs)
    state["jobs"] = {label(uid): describe(body) for uid, body in bodies.items() if len(uid) == 16}
    state["why"] = {label(uid[:16]): why.decode() for uid, why in bodies.items() if len(uid) > 16}
    state["stats"] = {name.decode(): int(value) for name, value in client.hgetall(keys.stats).items()}
    for name in ("gate", "watch"):
        if value := client.get(getattr(keys, name)):
            state[name] = value.decode()
    if client.exists(keys.wake):
        state["wake"] = True
    _named_keys(client, keys, state)
    return {name: part for name, part in state.items() if part or part == 0}


def changed(before: State, after: State) -> State:
    """The parts of `after` that differ from `before`; None for one that is gone."""
    return {name: after.get(name) for name in {*before, *after} if before.get(name) != after.get(name)}


def describe(raw: bytes) -> str:
    """The jobs of a frame in words."""
    frame = Frame(raw)
    words = [_word(frame[i]) for i in range(len(frame))]
    return " ".join([*words, f"?{len(frame.rest)}"] if frame.rest else words)


def _word(message: Message) -> str:
    attempt = f"/{message.attempt}" if message.attempt != 1 else ""
    crashes = f"*{message.crashes}" if message.crashes else ""
    return label(message.uid) + attempt + crashes


def _streams(client: redis.Redis, keys: QueueKeys, state: State) -> None:
    settled = client.hgetall(keys.progress)
    pending: dict[str, dict[str, list[str]]] = {}
    state["progress"] = {}
    for name in STREAMS:
        stream = getattr(keys, name)
        entries = {entry_id: _entry(fields) for entry_id, fields in client.xrange(stream)}
        state[name] = list(entries.values())
        for entry_id in entries.keys() & settled.keys():
            state["progress"][entries[entry_id]] = _bits(settled.pop(entry_id))
        if held := _pending(client, stream, entries):
            pending[name] = held
    state["progress"].update({entry_id.decode(): _bits(bitmap) for entry_id, bitmap in settled.items()})
    state["pending"] = pending


def _entry(fields: Mapping[bytes, bytes]) -> str:
    return describe(fields[b"f"]) if b"f" in fields else "(wake)"


def _pending(client: redis.Redis, stream: bytes, entries: Mapping[bytes, str]) -> dict[str, list[str]]:
    try:
        rows = client.xpending_range(stream, "fastq", "-", "+", 10_000)
        consumers = client.xinfo_consumers(stream, "fastq")
    except redis.ResponseError:  # no stream, no group
        return {}
    held: dict[str, list[str]] = {row["name"].decode(): [] for row in consumers}
    for row in rows:
        held.setdefault(row["consumer"].decode(), []).append(entries.get(row["message_id"], "(gone)"))
    return held


def _bits(bitmap: bytes) -> str:
    return "".join(f"{byte:08b}"[::-1] for byte in bitmap)


def _named_keys(client: redis.Redis, keys: QueueKeys, state: State) -> None:
    """Keys with a name of their own behind the prefix, and those that nobody knows."""
    known = {keys.stream, keys.front, keys.suspects, keys.scheduled, keys.jobs, keys.dead, keys.consumers, keys.progress}
    known |= {keys.gate, keys.watch, keys.wake, keys.stats, keys.cancelled}
    parts: dict[str, dict[str, Any]] = {name: {} for name in ("locks", "ids", "records", "results", "calls", "lanes", "others")}
    for key in sorted(client.scan_iter(match=keys.prefix + b"*", count=1000)):
        if key in known:
            continue
        kind, _, name = key.removeprefix(keys.prefix).partition(b":")
        if kind == b"stats":
            continue  # the same counters once more, by minute
        kept_as = client.type(key)
        value = client.get(key) if kept_as == b"string" else b""
        if kept_as == b"none" or value is None:
            continue  # it has gone since: a worker is at work
        if value and kind in (b"unique", b"id"):
            parts["locks" if kind == b"unique" else "ids"][name.decode()] = _held(value, client, key)
        elif kind == b"job":
            parts["records"][label(name)] = f"{value.decode()}, {_seconds_left(client, key)}"
        elif kind == b"result":
            for _, fields in client.xrange(key):
                parts["results"][label(name)] = fields[b"r"] if b"r" in fields else fields[b"s"].decode()
        elif kind in (b"calls", b"lane", b"starts"):
            who = name.decode() if kind != b"starts" else f"{name.decode()} (starts)"
            parts["lanes" if kind == b"lane" else "calls"][who] = int(value.split(b" ", 1)[0])
        else:
            parts["others"][key.removeprefix(keys.prefix).decode()] = client.type(key).decode()
    state.update(parts)


def _held(value: bytes, client: redis.Redis, key: bytes) -> str:
    return f"{label(value[:16])} {value[16:].decode()} {_seconds_left(client, key)}"


def _seconds_left(client: redis.Redis, key: bytes) -> str:
    left = client.pttl(key)
    return "no end" if left < 0 else f"{math.ceil(left / 1000)}s"
