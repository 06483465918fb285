"""beat.lua: a sign of life counts only for those whom the queue knows."""

from fastq.broker import requests
from tests.lua.conftest import Queue
from tests.support.builders import NOW
from tests.support.state import changed


def test_a_beat_is_taken_from_members_only(queue: Queue) -> None:
    queue.join("alive")
    queue.client.zadd(queue.keys.consumers, {"fenced": -1})
    before = queue.state()

    known = queue.call(requests.beat(queue.keys, [b"alive", b"fenced", b"stranger"], NOW + 1000))

    assert known == [True, False, False]
    assert changed(before, queue.state()) == {"consumers": {"alive": NOW + 1000, "fenced": -1}}


def test_without_a_given_time_the_server_s_clock_counts(queue: Queue) -> None:
    queue.join("w")

    queue.call(requests.beat(queue.keys, [b"w"]))

    seconds, _ = queue.client.time()
    assert abs(queue.state()["consumers"]["w"] - seconds * 1000) < 60_000
