"""Messages whose jobs have speaking names: a job's uid is its label, so that the state of a queue can be read."""

from collections.abc import Sequence
from typing import Any

from fastq.codec import Message, Template

NOW = 1_700_000_000_000  # ms; the clock that tests of scripts pass
UNTIL = {"done": 0, "success": 1, "start": 2, "ttl": 3}
ON_CONFLICT = {"raise": 0, "skip": 1, "replace": 2, "rerun": 3}


def uid(label: str) -> bytes:
    """The uid of the job with this label."""
    return label.encode().ljust(16, b".")


def label(uid: bytes) -> str:
    """What `uid` was made of; the uid in hex when it is a real one."""
    name = uid.rstrip(b".")
    return name.decode() if name.isascii() and name.decode().isprintable() else uid.hex()


def message(
    label: str = "a",
    *,
    task: str = "t",
    args: Sequence[Any] | None = None,
    lock: str = "",
    lock_ttl_ms: int = 60_000,
    until: str = "done",
    on_conflict: str = "raise",
    renew: bool = False,
    job_id: str = "",
    tracked: bool = False,
    due_ms: int = 0,
    expires_in_ms: int | None = None,
    retention_ms: int = 0,
    extras: bytes = b"",
    attempt: int = 1,
    crashes: int = 0,
    version: int = 1,
    now: int = NOW,
) -> bytes:
    """One message. Its lock key is `<task>:<lock>`; its only argument is its label, unless `args` says otherwise."""
    template = Template(
        task,
        policy=UNTIL[until] | (4 if renew else 0) | ON_CONFLICT[on_conflict] << 3,
        lock_ttl_ms=lock_ttl_ms if lock else 0,
        tracked=tracked,
        retention_ms=retention_ms,
        expires_in_ms=expires_in_ms,
        extras=extras,
    )
    arguments = tuple(args) if args is not None else (label,)
    key = f"{task}:{lock}".encode() if lock else b""
    raw = template.encode(arguments, {}, uid(label), now, due_ms, key, job_id.encode())
    raw = Message(raw).replace(attempt=attempt, crashes=crashes)
    return raw[:4] + bytes([version]) + raw[5:]


def frame(*messages: bytes | str) -> bytes:
    """A frame of these messages; a string stands for a plain message of that label."""
    return b"".join(message(one) if isinstance(one, str) else one for one in messages)


def head(raw: bytes) -> bytes:
    """A message up to its payload: what a worker sends to scripts."""
    return raw[: len(raw) - len(Message(raw).payload)]
