"""leave.lua: what a worker held is others' again, without a crash if it ended well."""

import pytest

from fastq.broker import requests
from tests.lua.conftest import Queue
from tests.support.builders import message
from tests.support.state import changed


def leave(queue: Queue, worker: str, *, died: bool, limit: int = 200) -> tuple[int, bool]:
    return queue.call(requests.leave(queue.keys, worker.encode(), died=died, limit=limit, now=queue.now))


@pytest.mark.parametrize(("died", "expected"), [(False, ["b", "c", "d"]), (True, ["b*1", "c*1", "d*1"])])
def test_unsettled_jobs_come_back_one_by_one(queue: Queue, died: bool, expected: list[str]) -> None:
    queue.join("w")
    half = queue.add("a", "b")
    queue.add("c", stream="front")
    queue.add("d", stream="suspects")
    for stream in ("stream", "front", "suspects"):
        queue.read("w", stream=stream)
    queue.client.hset(queue.keys.progress, half, b"\x01")

    assert leave(queue, "w", died=died) == (3, False)

    state = queue.state()
    assert sorted(state.pop("front")) == expected
    assert state == {"stats": {"waiting": 3, "reclaimed": 3}}


def test_a_worker_that_holds_much_is_emptied_in_bounded_calls(queue: Queue) -> None:
    queue.join("w")
    queue.join("other")
    for i in range(5):
        queue.add(f"j{i}")
    queue.read("w")

    assert leave(queue, "w", died=True, limit=2) == (2, True)
    assert queue.state("consumers", "front", "pending") == {
        "consumers": {"w": -1, "other": queue.now},  # fenced, so that it can settle none of what it still holds
        "front": ["j0*1", "j1*1"],
        "pending": {"stream": {"w": ["j2", "j3", "j4"]}},
    }
    assert leave(queue, "w", died=True, limit=2) == (2, True)
    assert leave(queue, "w", died=True, limit=2) == (1, False)
    assert queue.state("consumers", "pending") == {"consumers": {"other": queue.now}}


def test_a_repeat_changes_nothing(queue: Queue) -> None:
    queue.join("w")
    queue.join("other")
    queue.add("a")
    queue.read("w")
    leave(queue, "w", died=True)
    before = queue.state()

    assert leave(queue, "w", died=True) == (0, False)

    assert changed(before, queue.state()) == {}


def test_a_stranger_leaves_nothing_behind(queue: Queue) -> None:
    queue.join("w")
    before = queue.state()

    assert leave(queue, "stranger", died=False) == (0, False)

    assert queue.state() == before


def test_a_job_that_others_hold_is_left_alone(queue: Queue) -> None:
    queue.join("w")
    queue.join("v")
    queue.add(message("a"))
    queue.read("v")

    leave(queue, "w", died=True)

    assert queue.state("pending", "front") == {"pending": {"stream": {"v": ["a"]}}}
