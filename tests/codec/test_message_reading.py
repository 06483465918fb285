"""Message and Frame: what is read from good bytes, and how a changed copy is made."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq_ext.message import Frame, Message
from tests.support import message_twin as twin
from tests.support.message_calls import NOW, UID, encode, fields_of, good_frame

u64 = st.integers(0, 2**64 - 1)
optional = st.none() | u64
short = st.text(max_size=20)
messages = st.builds(
    twin.Fields,
    flags=st.sampled_from([0, twin.TRACKED, 0xF0]),
    crashes=st.integers(0, 255),
    policy=st.integers(0, 255),
    attempt=st.integers(0, 65535),
    uid=st.binary(min_size=16, max_size=16),
    enqueued_at=u64,
    lock_ttl_ms=u64,
    task=short,
    lock_key=short.map(str.encode),
    job_id=short,
    due_ms=optional,
    expires_ms=optional,
    retention_ms=optional,
    extras=st.binary(max_size=20),
    payload=st.binary(max_size=200),
)


@given(st.lists(messages, max_size=8))
def test_a_frame_of_good_messages_is_read_as_its_twin_reads_it(sent):
    raw = [twin.build(fields) for fields in sent]

    frame = Frame(b"".join(raw))

    assert [fields_of(frame[i]) for i in range(len(frame))] == sent
    assert [frame.message_bytes(i) for i in range(len(frame))] == raw
    assert frame.rest == b""


@given(
    messages,
    st.fixed_dictionaries(
        {},
        optional={
            "attempt": st.integers(0, 65535),
            "crashes": st.integers(0, 255),
            "due_ms": u64,
            "extras": st.binary(max_size=20),
            "payload": st.binary(max_size=200),
        },
    ),
)
def test_a_changed_copy_differs_in_what_was_changed_and_in_nothing_else(fields, changes):
    raw = twin.build(fields)

    changed = Message(raw).replace(**changes)

    expected = vars(fields) | changes
    expected["due_ms"] = expected["due_ms"] or None if "due_ms" in changes else fields.due_ms
    assert changed == twin.build(twin.Fields(**expected))


def test_a_copy_without_changes_is_the_same_bytes():
    odd = twin.build(twin.Fields(due_ms=0, flags=8, payload=bytes(4)))  # fields that are there and empty
    frame = Frame(good_frame())

    for raw in (odd, frame.message_bytes(0), frame.message_bytes(1), frame.message_bytes(3)):
        assert Message(raw).replace() == raw


@pytest.mark.parametrize("changes", [{"attempt": 65536}, {"attempt": -1}, {"crashes": 256}, {"due_ms": 2**64}], ids=str)
def test_a_number_that_does_not_fit_its_field_is_refused(changes):
    with pytest.raises(ValueError, match="does not fit"):
        Message(encode()).replace(**changes)


def test_a_message_of_another_version_tells_its_fixed_part_and_cannot_be_changed():
    fields = twin.Fields(version=9, uid=UID, enqueued_at=NOW, attempt=2, payload=b"whatever")

    message = Frame(twin.build(fields))[0]

    assert fields_of(message) == fields
    assert message.extras == {}
    with pytest.raises(ValueError, match="version 9"):
        message.replace(attempt=3)


@pytest.mark.parametrize(
    "extras",
    [b"\xc1", b"\x81", msgspec.msgpack.encode([1]), msgspec.msgpack.encode({1: 2}), b"\x80\x80", b"\x91" * 100_000],
    ids=["no msgpack", "cut off", "a list", "an int key", "bytes behind", "endless nesting"],
)
def test_extras_that_are_not_a_map_with_str_keys_are_an_error_when_asked_for(extras):
    message = Message(twin.build(twin.Fields(extras=extras, task="t")))

    assert message.task == "t"
    with pytest.raises(ValueError, match="extras that are not"):
        _ = message.extras


def test_a_message_outlives_its_frame():
    data = good_frame()
    message = Frame(bytes(bytearray(data)))[3]

    assert fields_of(message) == twin.split(data)[0][3]


def test_a_frame_is_indexed_like_a_list():
    frame = Frame(good_frame())

    assert len(frame) == frame.count == 4
    assert frame[-1].raw == frame[3].raw == frame.message_bytes(-1)
    assert frame.data == good_frame()
    for i in (4, -5, 2**40):
        with pytest.raises(IndexError):
            frame[i]
        with pytest.raises(IndexError):
            frame.message_bytes(i)


@pytest.mark.parametrize("raw", [b"", b"x", encode() + b"x", encode()[:-1], encode() * 2, bytes(48)], ids=len)
def test_a_message_is_exactly_one_sound_message(raw):
    with pytest.raises(ValueError, match="not a sound message"):
        Message(raw)


@pytest.mark.parametrize("raw", [None, "text", bytearray(encode()), memoryview(encode())], ids=type)
def test_only_bytes_are_read(raw):
    with pytest.raises(TypeError):
        Message(raw)
    with pytest.raises(TypeError):
        Frame(raw)


def test_a_message_made_without_its_bytes_is_an_empty_one_of_no_version():
    message = Message.__new__(Message)

    assert (message.version, message.task, message.payload, message.extras) == (0, "", b"", {})


def test_a_message_cannot_be_changed():
    message = Message(encode())

    with pytest.raises(AttributeError):
        message.attempt = 2
    with pytest.raises(AttributeError):
        message.note = "x"
