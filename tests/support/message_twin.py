"""Messages and frames in plain Python, slow and obvious: what fastq_ext.message is held against.

Written from docs/architecture.md alone, with struct and msgspec.
"""

import datetime as dt
import enum
import struct
from dataclasses import dataclass, field

import msgspec

FIXED = struct.Struct("<IBBBBH16sQHHHQ")
NUMBERS = (("due_ms", 1), ("expires_ms", 2), ("retention_ms", 4))
EXTRAS = 8
TRACKED = 16
MAX_MESSAGES = 64
MAX_DEPTH = 64


@dataclass(kw_only=True)
class Fields:
    """One message taken apart; one of another version has no names and is all payload behind its fixed part."""

    version: int = 1
    flags: int = 0  # only those that announce no field
    crashes: int = 0
    policy: int = 0
    attempt: int = 1
    uid: bytes = bytes(16)
    enqueued_at: int = 0
    lock_ttl_ms: int = 0
    task: str = ""
    lock_key: bytes = b""
    job_id: str = ""
    due_ms: int | None = None
    expires_ms: int | None = None
    retention_ms: int | None = None
    extras: bytes = b""
    payload: bytes = b""
    raw: bytes = field(default=b"", compare=False)


def build(fields: Fields) -> bytes:
    """The message with these fields."""
    names = [fields.task.encode(), fields.lock_key, fields.job_id.encode()]
    flags = fields.flags
    behind = b"".join(names)
    for name, flag in NUMBERS:
        number = getattr(fields, name)
        if number is not None:
            flags |= flag
            behind += struct.pack("<Q", number)
    if fields.extras:
        flags |= EXTRAS
        behind += struct.pack("<I", len(fields.extras)) + fields.extras
    behind += fields.payload
    fixed = FIXED.pack(
        FIXED.size - 4 + len(behind),
        fields.version,
        flags,
        fields.crashes,
        fields.policy,
        fields.attempt,
        fields.uid,
        fields.enqueued_at,
        *map(len, names),
        fields.lock_ttl_ms,
    )
    return fixed + behind


def read(raw: bytes) -> Fields | None:
    """The one message that these bytes are, or None when they are not a sound one."""
    if len(raw) < FIXED.size:
        return None
    length, version, flags, crashes, policy, attempt, uid, enqueued_at, *sizes, lock_ttl_ms = FIXED.unpack_from(raw)
    if length + 4 != len(raw):
        return None
    fields = Fields(
        version=version,
        flags=flags,
        crashes=crashes,
        policy=policy,
        attempt=attempt,
        uid=uid,
        enqueued_at=enqueued_at,
        lock_ttl_ms=lock_ttl_ms,
        raw=raw,
    )
    behind = raw[FIXED.size :]
    if version != 1:
        fields.payload = behind
        return fields
    try:
        names = []
        for size in sizes:
            name, behind = cut(behind, size)
            names.append(name)
        fields.task, fields.lock_key, fields.job_id = names[0].decode(), names[1], names[2].decode()
        names[1].decode()
        for name, flag in NUMBERS:
            if flags & flag:
                number, behind = cut(behind, 8)
                setattr(fields, name, int.from_bytes(number, "little"))
        if flags & EXTRAS:
            size, behind = cut(behind, 4)
            fields.extras, behind = cut(behind, int.from_bytes(size, "little"))
    except ValueError:  # UnicodeDecodeError too
        return None
    fields.flags &= ~0xF
    fields.payload = behind
    return fields


def cut(data: bytes, size: int) -> tuple[bytes, bytes]:
    if size > len(data):
        raise ValueError("too short")
    return data[:size], data[size:]


def split(data: bytes) -> tuple[list[Fields], bytes]:
    """The sound messages at the beginning of a frame, and the rest."""
    messages: list[Fields] = []
    while data and len(messages) < MAX_MESSAGES:
        size = 4 + int.from_bytes(data[:4], "little")
        message = read(data[:size])
        if message is None:
            break
        messages.append(message)
        data = data[size:]
    return messages, data


def encode_payload(args: tuple[object, ...], kwargs: dict[str, object]) -> bytes:
    return msgspec.msgpack.encode([list(args), kwargs])


def is_plain(value: object, depth: int = MAX_DEPTH) -> bool:
    """Whether a value comes back as what it is, without an annotation."""
    if isinstance(value, enum.Enum):
        return False
    if isinstance(value, str):
        return not any("\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, int):
        return -(2**63) <= value < 2**64
    if isinstance(value, dt.datetime):
        return value.utcoffset() is not None
    if isinstance(value, list):
        return depth > 0 and all(is_plain(item, depth - 1) for item in value)
    if isinstance(value, dict):
        keys_are_plain = all(isinstance(key, str | int | float | bytes | None) and is_plain(key) for key in value)
        return depth > 0 and keys_are_plain and all(is_plain(item, depth - 1) for item in value.values())
    return value is None or isinstance(value, float | bytes | bytearray | memoryview)
