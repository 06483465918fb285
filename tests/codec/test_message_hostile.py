"""Bytes that nobody meant to send: read as the twin reads them, raising nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq_ext.message import Frame
from tests.codec.fuzz_message import fuzz
from tests.support import message_twin as twin
from tests.support.message_calls import encode, good_frame, split


def test_a_good_frame_is_whole():
    messages, rest = split(good_frame())

    assert (messages, rest) == twin.split(good_frame())
    assert (len(messages), rest) == (4, b"")


def test_every_truncation_is_split_as_far_as_it_is_sound():
    data = good_frame()

    for end in range(len(data)):
        assert split(data[:end]) == twin.split(data[:end]), end


def test_every_flipped_bit_is_seen_for_what_it_is():
    data = good_frame()

    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            assert split(bytes(damaged)) == twin.split(bytes(damaged)), (at, bit)


@pytest.mark.parametrize("byte", [0x00, 0x7F, 0x80, 0xFF])
def test_every_byte_may_be_an_extreme_one(byte):
    data = good_frame()

    for at in range(len(data)):
        for size in (1, 2, 4):
            damaged = data[:at] + bytes([byte]) * size + data[at + size :]
            assert split(damaged) == twin.split(damaged), (at, size)


@pytest.mark.parametrize("length", [0, 43, 44, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFB, 0xFFFFFFFC, 0xFFFFFFFF])
def test_no_length_leads_beyond_the_end(length):
    data = length.to_bytes(4, "little") + encode()[4:]

    assert split(encode() + data) == twin.split(encode() + data)


@given(st.binary(max_size=400))
def test_random_bytes_are_split_as_the_twin_splits_them(data):
    assert split(data) == twin.split(data)


names = st.binary(max_size=6) | st.text(max_size=3).map(str.encode) | st.text(max_size=2).map(lambda s: s.encode()[:-1])


@given(names, names, names)
def test_a_name_is_utf8_exactly_when_python_says_so(task, lock_key, job_id):
    raw = bytearray(twin.build(twin.Fields(payload=task + lock_key + job_id)))
    for at, name in ((34, task), (36, lock_key), (38, job_id)):
        raw[at : at + 2] = len(name).to_bytes(2, "little")

    assert split(bytes(raw)) == twin.split(bytes(raw))


def test_every_two_bytes_are_utf8_exactly_when_python_says_so():
    for first in range(256):
        for second in range(0, 256, 8):
            for name in (bytes([first, second]), bytes([first, second, 0x80]), bytes([first, second, 0xBF, 0xBF])):
                raw = bytearray(twin.build(twin.Fields(payload=name)))
                raw[34] = len(name)
                try:
                    name.decode()
                except UnicodeDecodeError:
                    assert len(Frame(bytes(raw))) == 0, name
                else:
                    assert Frame(bytes(raw))[0].task == name.decode()


def test_a_short_run_of_the_fuzzer_finds_no_difference():
    rounds, sound = fuzz(20_240_229, rounds=3000)

    assert rounds == 3000
    assert sound > 3000  # the damage left enough to read
