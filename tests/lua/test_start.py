"""start.lua: whether a job that got a slot may start, and what it takes note of."""

from typing import Any

import pytest

from fastq.broker import requests
from fastq.broker.requests import WorkerFenced
from fastq.errors import BrokerError
from tests.lua.conftest import LEASE, Queue
from tests.support.builders import NOW, head, message, uid
from tests.support.state import changed

MONTH_MS = 30 * 86_400_000


def start(queue: Queue, *messages: bytes, number: int = 1) -> list[tuple[str, bytes | None]]:
    """Put the jobs into one frame, give it to worker "w", and ask for all of them."""
    entry = queue.add(*messages)
    queue.read("w")
    return ask(queue, entry, *messages, number=number)


def ask(queue: Queue, entry: bytes, *messages: bytes, number: int) -> list[tuple[str, bytes | None]]:
    jobs: Any = [("stream", entry, place, head(raw)) for place, raw in enumerate(messages)]
    return queue.call(requests.start(queue.keys, b"w", number, jobs, track_ms=MONTH_MS, lease_ms=LEASE, now=queue.now))


@pytest.fixture(autouse=True)
def joined(queue: Queue) -> None:
    queue.join("w")


@pytest.mark.parametrize(
    ("until", "locks"),
    [
        ("done", {"t:x": "a R 60s"}),
        ("success", {"t:x": "a R 60s"}),
        ("start", None),
        ("ttl", {"t:x": "a R 60s"}),
    ],
)
def test_a_job_that_starts_notes_it_in_its_lock_or_lets_it_go(queue: Queue, until: str, locks: dict[str, str] | None) -> None:
    queue.hold("x", "a")

    assert start(queue, message("a", lock="x", until=until)) == [("g", None)]

    assert queue.state().get("locks") == locks


@pytest.mark.parametrize("until", ["done", "start"])
def test_the_lock_of_another_is_not_touched(queue: Queue, until: str) -> None:
    queue.hold("x", "other")

    assert start(queue, message("a", lock="x", until=until)) == [("g", None)]

    assert queue.state("locks") == {"locks": {"t:x": "other W 60s"}}


def test_a_tracked_job_is_recorded_as_running(queue: Queue) -> None:
    start(queue, message("a", tracked=True, attempt=2))

    assert queue.state("records") == {"records": {"a": f"running 2 {NOW}, {MONTH_MS // 1000}s"}}


def test_a_cancelled_job_does_not_start_and_a_paused_queue_starts_nothing(queue: Queue) -> None:
    queue.client.zadd(queue.keys.cancelled, {uid("b"): NOW})
    queue.client.set(queue.keys.gate, "cancelled")
    assert start(queue, message("a"), message("b"), number=1) == [("g", None), ("c", None)]

    queue.client.set(queue.keys.gate, "paused")

    assert start(queue, message("a"), message("b"), number=2) == [("p", None), ("c", None)]


def test_a_repeat_is_answered_and_changes_nothing(queue: Queue) -> None:
    raw = message("a", lock="x", until="start", tracked=True)
    queue.hold("x", "a")
    entry = queue.add(raw)
    queue.read("w")
    first = ask(queue, entry, raw, number=3)
    queue.hold("x", "a")  # were it done again, this one would go too
    before = queue.state()

    assert ask(queue, entry, raw, number=3) == first
    with pytest.raises(BrokerError, match="start call 2 came after a later one"):
        ask(queue, entry, raw, number=2)

    assert changed(before, queue.state()) == {}


@pytest.mark.parametrize("beat", [None, -1], ids=["a stranger", "fenced"])
def test_a_worker_whom_the_queue_does_not_know_starts_nothing(queue: Queue, beat: int | None) -> None:
    raw = message("a", lock="x", until="start")
    queue.hold("x", "a")
    entry = queue.add(raw)
    queue.read("w")
    if beat is None:
        queue.client.zrem(queue.keys.consumers, "w")
    else:
        queue.client.zadd(queue.keys.consumers, {"w": beat})
    before = queue.state()

    with pytest.raises(WorkerFenced):
        ask(queue, entry, raw, number=1)

    assert queue.state() == before
