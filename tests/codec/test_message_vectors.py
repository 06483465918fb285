"""The committed byte vectors. They are a promise: messages of an older fastq lie in queues when a newer one starts."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fastq_ext.message import Frame, Message
from tests.support import message_twin as twin
from tests.support.message_calls import encode, fields_of

VECTORS = json.loads(Path(__file__).with_name("message_vectors.json").read_text("utf-8"))
BYTE_FIELDS = ("uid", "lock_key", "extras", "payload")


def fields_in(entry) -> twin.Fields:
    return twin.Fields(**{k: bytes.fromhex(v) if k in BYTE_FIELDS else v for k, v in entry["fields"].items()})


def expand(pattern: str) -> bytes:
    """`d920+78*32`: the bytes d9 20 and 32 times 78."""
    parts = (part.partition("*") for part in pattern.split("+"))
    return b"".join(bytes.fromhex(code) * int(times or 1) for code, _, times in parts)


@pytest.mark.parametrize(("expression", "pattern"), VECTORS["values"], ids=[e for e, _ in VECTORS["values"]])
def test_a_value_is_written_in_its_smallest_form(expression, pattern):
    value = eval(expression, {"datetime": datetime, "UTC": UTC})

    payload = Message(encode(value)).payload

    assert payload == b"\x92\x91" + expand(pattern) + b"\x80"


@pytest.mark.parametrize("entry", VECTORS["messages"], ids=lambda entry: entry["name"])
def test_a_message_is_read_as_its_vector_says(entry):
    raw = bytes.fromhex(entry["hex"])

    assert fields_of(Message(raw)) == fields_in(entry)


@pytest.mark.parametrize("entry", VECTORS["messages"], ids=lambda entry: entry["name"])
def test_the_twin_builds_each_vector(entry):
    assert twin.build(fields_in(entry)).hex() == entry["hex"].replace(" ", "")


@pytest.mark.parametrize("entry", VECTORS["frames"], ids=lambda entry: entry["name"])
def test_a_frame_is_split_as_far_as_it_is_sound(entry):
    data = bytes.fromhex(entry["hex"])

    frame = Frame(data)

    sound, rest = twin.split(data)
    assert len(frame) == entry["sound"] == len(sound)
    assert frame.rest == rest
    assert [frame.message_bytes(i) for i in range(len(frame))] == [message.raw for message in sound]
