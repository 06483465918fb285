"""No reference is kept or lost, and no buffer forgotten, when all goes well and when nothing does."""

import datetime as dt
import gc
import resource
import sys

import pytest

from fastq_ext.message import EncodeError, Frame, Message, Packer
from tests.support.message_calls import NOW, UID, encode, good_frame, template

ROUNDS = 200


class Text(str):
    __slots__ = ()


def leaves() -> list[object]:
    """Values whose references can be counted: none of them is shared or immortal."""
    return [
        Text("text"),
        "".join(["a", "é"]),
        12345678901234567890,
        float("1.5"),
        bytes([1, 2, 3]),
        bytearray(b"ab"),
        dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))),
        ["list"],
        {"key": "dict"},
    ]


def references(values: list[object]) -> list[int]:
    return [sys.getrefcount(value) for value in values]


def test_arguments_that_are_encoded_keep_their_references():
    values = leaves()
    args = (*values, list(values), dict(enumerate(values)))
    kwargs = {f"key {i}": value for i, value in enumerate(values)}
    before = references(values)

    for _ in range(ROUNDS):
        template().encode(args, kwargs, UID, NOW)

    assert references(values) == before


def test_arguments_that_are_refused_keep_their_references():
    values = leaves()
    bad = {"deep": [*values, {1}]}
    before = references([*values, bad])

    for _ in range(ROUNDS):
        with pytest.raises(EncodeError):
            template().encode((*values, bad), {}, UID, NOW)

    gc.collect()
    assert references([*values, bad]) == before


def test_items_that_are_packed_or_handed_back_keep_their_references():
    values = leaves()
    good, foreign, bad = tuple(values), object(), (values, {1})
    before = references([*values, good, foreign, bad])

    for _ in range(ROUNDS):
        packer = Packer()
        packer.pack(template(), iter([good, foreign]), NOW, 100, 1 << 20, lambda args, kwargs: b"k", bytearray())
        packer.pack(template(), iter([good, bad]), NOW, 100, 1 << 20)

    gc.collect()
    assert references([*values, good, foreign, bad]) == before


def test_a_frame_and_its_messages_let_go_of_their_bytes():
    data = bytes(bytearray(good_frame()))
    before = sys.getrefcount(data)

    for _ in range(ROUNDS):
        frame = Frame(data)
        messages = [frame[i] for i in range(len(frame))]
        assert [message.uid for message in messages]
        Message(encode())
    del frame, messages

    assert sys.getrefcount(data) == before


def peak_memory() -> int:
    """In bytes; it never goes down."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def test_buffers_on_the_heap_are_freed_by_success_and_by_failure():
    large = "x" * 100_000
    made = template(max_payload=150_000)

    def work(rounds):
        for _ in range(rounds):
            made.encode((large,), {}, UID, NOW)
            with pytest.raises(EncodeError):
                made.encode((large, {1}), {}, UID, NOW)
            with pytest.raises(EncodeError):
                made.encode((large, large), {}, UID, NOW)
            Packer().pack(made, iter([(large,), (large, {1})]), NOW, 10, 1 << 20, uids=bytearray())
            Frame(encode(large))[0].replace(attempt=2)

    work(20)
    before = peak_memory()
    work(300)  # a buffer forgotten in each round would be 30 MB or more

    assert peak_memory() - before < 15_000_000
