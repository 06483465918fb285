"""What a queue holds, and all keys of a namespace: for supervisors, operators and proofs. No I/O, as in `requests`."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from fastq.broker.requests import Request
from fastq.keys import GROUP, QueueKeys

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


def workers(keys: QueueKeys) -> Request[list[bytes]]:
    """The names of a queue's workers, also of those that are being taken out."""
    return Request(list, commands=((b"ZRANGE", keys.consumers, 0, -1),))


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
