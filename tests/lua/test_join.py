"""join.lua: a worker enters a queue before its first read."""

from tests.lua.conftest import STREAMS, Queue
from tests.support.builders import NOW, frame, uid
from tests.support.state import changed


def test_joining_makes_the_three_streams_and_their_group(queue: Queue) -> None:
    queue.join("w")

    assert [queue.client.xinfo_groups(getattr(queue.keys, name))[0]["name"] for name in STREAMS] == [b"fastq"] * 3
    assert queue.state() == {"consumers": {"w": NOW}}


def test_a_group_that_is_made_gets_what_waited_before_it(queue: Queue) -> None:
    queue.add("a", "b")

    assert queue.join("w") == 0

    assert len(queue.read("w")) == 1
    assert queue.state("pending") == {"pending": {"stream": {"w": ["a b"]}}}


def test_joining_again_only_beats(queue: Queue) -> None:
    queue.add("a")
    queue.join("w")
    queue.read("w")
    before = queue.state()
    queue.now += 5000

    assert queue.join("w") == 0

    assert changed(before, queue.state()) == {"consumers": {"w": NOW + 5000}}


def test_a_lost_group_brings_back_the_jobs_that_were_not_settled(queue: Queue) -> None:
    queue.join("w")
    half, whole = queue.add("a", "b", "c"), queue.add("d")
    queue.client.hset(queue.keys.progress, half, b"\x05")
    for name in STREAMS:
        queue.client.xgroup_destroy(getattr(queue.keys, name), "fastq")

    assert queue.join("v") == 1

    assert queue.state("stream", "front", "progress") == {"stream": ["d"], "front": ["b"]}
    front = queue.client.xrange(queue.keys.front)[0][0]
    assert place(front) > place(whole) > place(half)


def test_only_a_group_that_was_lost_is_made_anew(queue: Queue) -> None:
    """The entries of the others are in the hands of workers that live."""
    queue.join("w")
    half = queue.add("a", "b")
    queue.read("w")
    queue.client.hset(queue.keys.progress, half, b"\x01")
    before = queue.state()
    queue.client.delete(queue.keys.front)

    assert queue.join("v") == 0

    assert changed(before, queue.state()) == {"consumers": {"w": NOW, "v": NOW}}


def test_progress_of_entries_that_are_gone_with_all_groups_is_forgotten(queue: Queue) -> None:
    queue.client.hset(queue.keys.progress, "1-1", b"\x01")

    assert queue.join("w") == 0

    assert queue.state() == {"consumers": {"w": NOW}}


def test_a_frame_of_64_jobs_and_a_corrupt_end_comes_back_piece_by_piece(queue: Queue) -> None:
    labels = [f"j{i}" for i in range(64)]
    entry = queue.client.xadd(queue.keys.stream, {b"f": frame(*labels) + b"corrupt"})
    queue.client.hset(queue.keys.progress, entry, b"\xff" * 7 + b"\x7f")

    assert queue.join("w") == 2

    assert queue.state("front", "stream") == {"front": ["j63", "?7"]}


def place(entry_id: bytes) -> tuple[int, ...]:
    """An entry id in the order of the stream."""
    return tuple(map(int, entry_id.split(b"-")))


def test_a_fenced_worker_may_not_come_back_to_life_by_a_beat(queue: Queue) -> None:
    queue.client.zadd(queue.keys.consumers, {"w": -1})
    queue.client.hset(queue.keys.jobs, uid("x"), frame("x"))

    queue.join("v")

    assert queue.state("consumers") == {"consumers": {"w": -1, "v": NOW}}
