"""Uids: UUIDv7, strictly increasing in a process, random between processes."""

import itertools
import os
import threading
import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq_ext.message import new_uid


def now() -> int:
    return time.time_ns() // 1_000_000


def test_a_uid_is_a_uuid_of_version_7_made_at_its_time():
    moment = now()

    uid = uuid.UUID(bytes=new_uid(moment))

    assert uid.version == 7
    assert uid.variant == uuid.RFC_4122
    assert uid.int >> 80 == moment


@given(st.integers(0, 1_700_000_000_000), st.lists(st.integers(0, 10_000), min_size=2, max_size=200))
def test_uids_grow_however_the_clock_trembles(start, steps):
    new_uid(2_000_000_000_000)  # so that the times of the example before are no part of this one: the clock was set back since
    uids = [new_uid(start + step) for step in steps]

    assert all(earlier < later for earlier, later in itertools.pairwise(uids))
    assert {uuid.UUID(bytes=uid).version for uid in uids} == {7}


def test_a_clock_that_was_set_back_is_followed():
    moment = now()
    ahead = [new_uid(moment + 3_600_000) for _ in range(2)]

    corrected = [new_uid(moment) for _ in range(2)]

    assert [uuid.UUID(bytes=uid).int >> 80 for uid in corrected] == [moment, moment]
    assert len({*ahead, *corrected}) == 4


def test_many_uids_of_one_millisecond_grow():
    moment = now()
    last = new_uid(moment)

    for _ in range(200_000):
        uid = new_uid(moment)
        assert uid > last
        last = uid


def test_the_random_part_is_drawn_anew_for_each_millisecond():
    start = now()

    drawn = {new_uid(start + i)[6:] for i in range(300)}

    assert len(drawn) == 300
    assert len({part[2:] for part in drawn}) == 300


def test_threads_never_get_the_same_uid():
    made: list[list[bytes]] = []

    def make():
        # A new millisecond each time empties the pool of random bytes often, and filling it lets other threads run.
        start = now()
        made.append([new_uid(start + i // 4) for i in range(5000)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    uids = [uid for part in made for uid in part]
    assert len(set(uids)) == len(uids) == 20_000
    assert all(part == sorted(part) for part in made)


def in_a_fork(make) -> list[bytes]:
    """The uids that `make` makes in a forked child."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with os.fdopen(writer, "wb") as out:
                out.write(b"".join(make()))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as come:
        data = come.read()
    os.waitpid(pid, 0)
    return [data[i : i + 16] for i in range(0, len(data), 16)]


def test_forked_children_and_their_parent_never_make_the_same_uid():
    moment = now()
    new_uid(moment)  # parent and children would all count up from here

    def make():
        return [new_uid(moment + i // 100) for i in range(1000)]

    families = [in_a_fork(make) for _ in range(4)] + [make()]

    uids = [uid for family in families for uid in family]
    assert len(set(uids)) == len(uids) == 5000
    assert len({family[0][6:] for family in families}) == 5
    assert all(family == sorted(family) for family in families)


@pytest.mark.parametrize(("moment", "error"), [(2**48, ValueError), (2**64, OverflowError), (-1, OverflowError)])
def test_a_time_beyond_48_bits_is_refused(moment, error):
    with pytest.raises(error):
        new_uid(moment)
