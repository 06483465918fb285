"""Shared by the tests of messages: templates, good frames, and everything that can be asked of a message at once."""

import msgspec

from fastq_ext.message import Frame, Message, Template
from tests.support.message_twin import Fields, build

NOW = 1_700_000_000_000
UID = bytes.fromhex("018bcfe568007abc8def0123456789ab")


def template(task: str = "task", **options: object) -> Template:
    return Template(task, **options)  # type: ignore[arg-type]


def encode(*args: object, **kwargs: object) -> bytes:
    return template().encode(args, kwargs, UID, NOW)


def payload_of(*args: object, **kwargs: object) -> tuple[list[object], dict[str, object]]:
    """What a worker without annotations would get of a call."""
    return msgspec.msgpack.decode(Message(encode(*args, **kwargs)).payload, type=tuple[list, dict])


def good_frame() -> bytes:
    """A plain message, one with everything that a message can have, one of another version, a plain one."""
    rich = Fields(
        uid=UID,
        enqueued_at=NOW,
        task="shop.größe",
        lock_key="shop.größe:o-1".encode(),
        job_id="événement",
        flags=16,
        policy=5,
        lock_ttl_ms=1000,
        due_ms=NOW + 1,
        expires_ms=NOW + 2,
        retention_ms=3,
        extras=msgspec.msgpack.encode({"retries": 2}),
        payload=b"\x92\x90\x80",
    )
    other = build(Fields(version=2, uid=UID, payload=b"unknown"))
    return encode(1) + build(rich) + other + encode("x", y=2)


def fields_of(message: Message) -> Fields:
    """All that a message tells, as its twin tells it."""
    return Fields(
        version=message.version,
        flags=message.flags & ~0xF if message.version == 1 else message.flags,
        crashes=message.crashes,
        policy=message.policy,
        attempt=message.attempt,
        uid=message.uid,
        enqueued_at=message.enqueued_at,
        lock_ttl_ms=message.lock_ttl_ms,
        task=message.task,
        lock_key=message.lock_key,
        job_id=message.job_id,
        due_ms=message.due_ms,
        expires_ms=message.expires_ms,
        retention_ms=message.retention_ms,
        extras=extras_of(message),
        payload=message.payload,
    )


def extras_of(message: Message) -> bytes:
    """The extras as bytes, found as what a copy without them lacks."""
    if message.version != 1 or not message.flags & 8:
        return b""
    without = message.replace(extras=b"", payload=b"")
    behind = message.raw[len(without) :]
    return behind[4 : len(behind) - len(message.payload)]


def split(data: bytes) -> tuple[list[Fields], bytes]:
    """What Frame makes of these bytes, in the form of the twin."""
    frame = Frame(data)
    return [fields_of(frame[i]) for i in range(len(frame))], frame.rest
