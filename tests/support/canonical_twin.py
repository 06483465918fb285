"""The canonical form once more, slow and obvious: what the compiled one is held against.

`form` follows docs/canonical.md word by word. `meaning` says the same in Python's own terms: two values are the same
exactly if their meanings are equal, so it tells whether `form` (and the extension) keeps apart what differs.
"""

import base64
import dataclasses
import hashlib
import struct
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec

MICROSECOND = timedelta(microseconds=1)
EPOCH = date(1970, 1, 1)


def digest(arguments: dict[str, Any]) -> bytes:
    """The key of a call that gives exactly these arguments."""
    return base64.urlsafe_b64encode(hashlib.blake2b(b"fastq/1" + form(arguments), digest_size=24).digest())


def form(value: Any) -> bytes:
    match plain(value):
        case None:
            return b"n"
        case bool(truth):
            return b"t" if truth else b"f"
        case int(number):
            magnitude = abs(number).to_bytes((abs(number).bit_length() + 7) // 8, "big")
            return (b"j" if number < 0 else b"i") + varint(len(magnitude)) + magnitude
        case float(number):
            return b"d" + (bytes.fromhex("7ff8000000000000") if number != number else struct.pack(">d", number + 0.0))
        case str(text):
            return b"s" + varint(len(text.encode())) + text.encode()
        case bytes(data):
            return b"b" + varint(len(data)) + data
        case list(items):
            return b"l" + varint(len(items)) + b"".join(map(form, items))
        case frozenset(elements):
            distinct = {form(element) for element in elements}
            return b"e" + varint(len(distinct)) + b"".join(sorted(distinct))
        case dict(mapping):
            forms = {form(key): form(item) for key, item in mapping.items()}
            if len(forms) != len(mapping):
                raise ValueError("two keys have the same form")
            return b"m" + varint(len(forms)) + b"".join(key + forms[key] for key in sorted(forms))
        case Decimal() as number:
            number_text = decimal_text(number).encode()
            return b"q" + varint(len(number_text)) + number_text
        case UUID() as uuid:
            return b"u" + uuid.bytes
        case datetime() as moment:
            offset = moment.utcoffset()
            since_epoch = moment.replace(tzinfo=None) - datetime(1970, 1, 1) - (offset or timedelta(0))
            return (b"w" if offset is None else b"a") + form(since_epoch // MICROSECOND)
        case date() as day:
            return b"y" + form((day - EPOCH).days)
        case time() as clock:
            offset = clock.utcoffset()
            since_midnight = datetime.combine(EPOCH, clock.replace(tzinfo=None)) - datetime(1970, 1, 1)
            return (b"c" if offset is None else b"z") + form((since_midnight - (offset or timedelta(0))) // MICROSECOND)
        case timedelta() as duration:
            return b"p" + form(duration // MICROSECOND)
    raise TypeError(type(value))


def plain(value: Any) -> Any:
    """The value without what makes no difference: Enums, subclasses and classes with fields, the kind of a sequence."""
    match value:
        case Enum():
            return plain(value.value)
        case bool():
            return value
        case int():
            return int(value)
        case str():
            return str(value)
        case float():
            return float(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value)
        case list() | tuple():
            return list(value)
        case set() | frozenset():
            return frozenset(value)
        case dict():
            return dict(value)
        case msgspec.Struct():
            config = value.__struct_config__
            tag = {} if config.tag is None else {config.tag_field: config.tag}
            names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
            return tag | without_unset((written, getattr(value, name)) for written, name in names)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return without_unset((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    return value


def without_unset(fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in fields if value is not msgspec.UNSET}


def varint(number: int) -> bytes:
    low, rest = number % 128, number // 128
    return bytes([low + 128]) + varint(rest) if rest else bytes([low])


def decimal_text(number: Decimal) -> str:
    if number.is_nan():
        return "NaN"
    if number.is_infinite():
        return "Infinity" if number > 0 else "-Infinity"
    sign, digits, exponent = number.as_tuple()
    text = "".join(map(str, digits))
    while text.endswith("0"):
        text, exponent = text[:-1], int(exponent) + 1
    return f"{'-' * sign}{text.lstrip('0')}E{exponent}" if text else "0E0"


def meaning(value: Any) -> Any:
    """Something hashable that equals the meaning of another value exactly if the two are the same."""
    value = plain(value)
    match value:
        case list():
            return "list", tuple(map(meaning, value))
        case frozenset():
            return "set", frozenset(map(meaning, value))
        case dict():
            return "map", frozenset((meaning(key), meaning(item)) for key, item in value.items())
        case float() | Decimal() if value != value:
            return type(value).__name__, "NaN"
        case datetime() if value.utcoffset() is not None:
            return "instant", value - datetime(1970, 1, 1, tzinfo=UTC)
        case datetime() | time():
            return type(value).__name__, value.utcoffset() is None, value.replace(fold=0)
    return type(value).__name__, value
