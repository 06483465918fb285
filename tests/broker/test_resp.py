"""Commands as they are written for Redis: what hiredis writes, byte for byte."""

import enum

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq.broker.requests import PlainEnqueue, enqueue, plain_frame
from fastq.keys import queue_keys
from fastq_ext.resp import Command, pack_command

WHOLE = st.integers(-(1 << 70), 1 << 70)
PARTS = st.one_of(st.binary(max_size=3000), st.text(max_size=200), WHOLE, st.floats(allow_nan=False))


@given(st.lists(PARTS, max_size=300).map(tuple))
def test_a_command_is_written_as_hiredis_writes_it(parts: tuple[bytes | str | int | float, ...]) -> None:
    assert pack_command(parts) == hiredis.pack_command(parts)  # type: ignore[arg-type]  # its stub knows tuples of one only


@pytest.mark.parametrize("size", [0, 9, 10, 99, 100, 999, 1000, 2040, 2048, 2049, 65_536, 1 << 20])
def test_a_part_of_any_size_is_written_whole(size: int) -> None:
    assert pack_command((b"x" * size,)) == b"*1\r\n$%d\r\n%b\r\n" % (size, b"x" * size)


def test_what_derives_from_a_number_is_written_as_one() -> None:
    class Colour(enum.IntEnum):
        RED = 3

    class Half(float):
        def __repr__(self) -> str:
            return "half"

    assert pack_command((Colour.RED, Half(0.5))) == b"*2\r\n$1\r\n3\r\n$3\r\n0.5\r\n"


@pytest.mark.parametrize("part", [None, [], bytearray(b"x"), object(), "\ud800"])
def test_anything_else_is_refused(part: object) -> None:
    with pytest.raises(TypeError, match="a part of a command"):
        pack_command((b"SET", part))  # type: ignore[arg-type]


def test_only_a_tuple_is_a_command() -> None:
    with pytest.raises(TypeError):
        pack_command([b"PING"])  # type: ignore[arg-type]


@given(st.lists(PARTS, max_size=20).map(tuple), st.lists(PARTS, max_size=20).map(tuple))
def test_a_command_that_is_made_in_two_steps_is_the_same(
    begin: tuple[bytes | str | int | float, ...], rest: tuple[bytes | str | int | float, ...]
) -> None:
    command = Command(begin, len(rest))

    assert command.pack(*rest) == command.pack(*rest) == pack_command(begin + rest)


def test_a_command_takes_the_number_of_parts_that_it_was_made_for() -> None:
    with pytest.raises(ValueError, match="takes 2 more parts, not 1"):
        Command((b"SET",), 2).pack(b"key")


def test_the_enqueue_of_a_plain_job_is_the_one_of_any_job() -> None:
    keys = queue_keys("shop", "mail")

    short, full = PlainEnqueue(keys).request(b"a message"), enqueue(keys, [plain_frame(b"a message", 1)], 1, laned=False)

    assert short.pack() == full.pack()
    assert short.pack(by_source=True) == full.pack(by_source=True)
    assert (short.laned, short.repeatable) == (full.laned, full.repeatable)
    assert short.read([0, []]) == full.read([0, []]) == []
