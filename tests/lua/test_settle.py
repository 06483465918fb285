"""settle.lua: the ends of a batch of jobs, in one call."""

from collections.abc import Callable
from typing import Any

import pytest

from fastq.broker.requests import WorkerFenced
from fastq.errors import BrokerError
from tests.lua.conftest import Queue
from tests.support.builders import NOW, head, message, uid
from tests.support.servers import Server
from tests.support.state import changed

HOUR, WEEK = 3600, 604_800


@pytest.fixture
def running(queue: Queue) -> Callable[..., bytes]:
    """Brings a frame into the hands of worker "w"; its entry id."""
    queue.join("w")

    def run(*messages: bytes | str, stream: str = "stream") -> bytes:
        entry_id = queue.add(*messages, stream=stream)
        queue.read("w", stream=stream)
        return entry_id

    return run


def report(entry_id: bytes, *outcomes: tuple[Any, ...], **more: Any) -> dict[str, Any]:
    """A report that ends an entry of the main stream."""
    return {"done": ([entry_id], [], []), "finished": [entry_id], "outcomes": list(outcomes), **more}


@pytest.mark.parametrize("stream", ["stream", "front", "suspects"])
def test_finished_entries_go_with_their_progress(queue: Queue, running: Callable[..., bytes], stream: str) -> None:
    entry = running("a", "b", stream=stream)
    queue.client.hset(queue.keys.progress, entry, b"\x01")
    done = [[entry] if name == stream else [] for name in ("stream", "front", "suspects")]

    queue.settle(done=tuple(done), handed_out=2, counters={"succeeded": 2, "succeeded:t": 2})

    assert queue.state() == {
        "consumers": {"w": NOW},
        "pending": {stream: {"w": []}},
        "stats": {"waiting": -2, "succeeded": 2, "succeeded:t": 2},
        "calls": {"w": 1},
    }


def test_an_entry_that_is_not_finished_keeps_its_progress(queue: Queue, running: Callable[..., bytes]) -> None:
    entry = running("a", "b", "c")
    before = queue.state()

    queue.settle(progress=[entry, b"\x05"])

    assert changed(before, queue.state()) == {"progress": {"a b c": "10100000"}, "calls": {"w": 1}}


def test_locks_are_released_by_their_owners_only(queue: Queue, running: Callable[..., bytes]) -> None:
    entry = running(message("a", lock="x"), message("b", lock="y"), message("c", lock="z"))
    queue.hold("x", "a")
    queue.hold("y", "successor")

    lost = queue.settle(**report(entry, uids=uid("a") + uid("b") + uid("c"), locks=[queue.lock(key) for key in "xyz"]))

    assert lost == 2  # one has another owner, one is gone
    assert queue.state("locks", "stats") == {"locks": {"t:y": "successor W 60s"}, "stats": {"locks_lost": 2, "locks_lost:t": 2}}


ENDS = [
    # state, it had been tried, until, whether the lock is released
    ("succeeded", True, "done", True),
    ("succeeded", True, "success", True),
    ("succeeded", True, "ttl", False),
    ("dropped", True, "done", True),
    ("dropped", True, "success", True),
    ("dropped", True, "ttl", False),
    ("cancelled", True, "done", True),
    ("cancelled", True, "success", False),
    ("cancelled", True, "ttl", False),
    ("expired", True, "success", False),
    *((state, False, until, True) for state in ("cancelled", "expired") for until in ("done", "success", "start", "ttl")),
]


@pytest.mark.parametrize(("how", "tried", "until", "released"), ENDS)
def test_each_end_does_with_the_lock_what_until_says(
    queue: Queue, running: Callable[..., bytes], how: str, tried: bool, until: str, released: bool
) -> None:
    raw = message("a", lock="x", until=until)
    entry = running(raw)
    queue.hold("x", "a", state="R")

    queue.settle(**report(entry, ("end", how, int(tried), head(raw))))

    assert queue.state("locks") == ({} if released else {"locks": {"t:x": "a E 60s"}})


@pytest.mark.parametrize(("until", "released"), [("done", True), ("success", False), ("ttl", False)])
def test_a_dead_job_is_kept_and_does_with_its_lock_what_until_says(
    queue: Queue, running: Callable[..., bytes], until: str, released: bool
) -> None:
    raw = message("a", lock="x", until=until, attempt=4)
    entry = running(raw)
    queue.hold("x", "a", state="R")
    before = queue.state()

    queue.settle(**report(entry, ("dead", raw, "because")))

    assert changed(before, queue.state()) == {
        "stream": None,
        "pending": {"stream": {"w": []}},
        "jobs": {"a": "a/4"},
        "dead": {"a": NOW},
        "why": {"a": "because"},
        "stats": {"dead": 1, "dead_bytes": len(raw)},
        "calls": {"w": 1},
        "locks": None if released else {"t:x": "a E 60s"},
    }


@pytest.mark.parametrize(
    ("how", "retention_ms", "expected"),
    [
        ("succeeded", 0, {}),
        ("succeeded", 30_000, {"ids": {"i": "a W 30s"}}),
        ("dropped", 30_000, {"ids": {"i": "a W 30s"}}),
        ("cancelled", 0, {}),
    ],
)
def test_an_id_is_free_when_the_job_has_ended_and_its_retention_has_passed(
    queue: Queue, running: Callable[..., bytes], how: str, retention_ms: int, expected: dict[str, Any]
) -> None:
    raw = message("a", job_id="i", retention_ms=retention_ms)
    entry = running(raw)
    queue.client.set(queue.keys.id("i"), uid("a") + b"W", px=86_400_000)

    queue.settle(**report(entry, ("end", how, 1, head(raw))))

    assert queue.state("ids") == expected


def test_an_id_that_is_another_job_s_is_left_alone(queue: Queue, running: Callable[..., bytes]) -> None:
    raw = message("a", job_id="i")
    entry = running(raw)
    queue.client.set(queue.keys.id("i"), uid("b") + b"W", px=60_000)

    queue.settle(**report(entry, ("end", "succeeded", 1, head(raw))))

    assert queue.state("ids") == {"ids": {"i": "b W 60s"}}


def test_a_dead_job_keeps_its_id_for_as_long_as_it_is_kept(queue: Queue, running: Callable[..., bytes]) -> None:
    raw = message("a", job_id="i")
    entry = running(raw)
    queue.client.set(queue.keys.id("i"), uid("a") + b"W", px=60_000)

    queue.settle(**report(entry, ("dead", raw, "")))

    assert queue.state("ids") == {"ids": {"i": "a W no end"}}


@pytest.mark.parametrize(
    ("outcome", "retention_ms", "record", "result"),
    [
        (("end", "succeeded"), 0, f"succeeded 1 {NOW}, {HOUR}s", None),
        (("end", "succeeded"), 7_200_000, f"succeeded 1 {NOW}, {2 * HOUR}s", None),
        (("end", "dropped"), 0, f"dropped 1 {NOW}, {HOUR}s", "dropped"),
        (("end", "cancelled"), 0, f"cancelled 1 {NOW}, {HOUR}s", "cancelled"),
        (("dead",), 0, f"dead 1 {NOW}, {WEEK}s", "dead"),
    ],
)
def test_the_end_of_a_tracked_job_is_recorded_and_wakes_who_waits(
    queue: Queue, running: Callable[..., bytes], outcome: tuple[str, ...], retention_ms: int, record: str, result: str
) -> None:
    raw = message("a", tracked=True, retention_ms=retention_ms)
    entry = running(raw)

    queue.settle(**report(entry, (*outcome, 1, head(raw)) if outcome[0] == "end" else ("dead", raw, "")))

    state = queue.state("records", "results")
    assert state == {"records": {"a": record}, **({"results": {"a": result}} if result else {})}


def test_a_result_is_kept_for_its_time(queue: Queue, running: Callable[..., bytes]) -> None:
    entry = running("a")

    queue.settle(**report(entry, ("result", uid("a"), 5000, b"\x2a")))

    assert queue.state("results") == {"results": {"a": b"\x2a"}}
    assert 4000 < queue.client.pttl(queue.keys.result(uid("a"))) <= 5000


def test_a_retry_is_scheduled_with_lock_and_id_in_its_hands(queue: Queue, running: Callable[..., bytes]) -> None:
    raw = message("a", lock="x", job_id="i", tracked=True, attempt=2)
    entry = running(message("a", lock="x", job_id="i", tracked=True))
    queue.hold("x", "a", state="R")
    queue.client.set(queue.keys.id("i"), uid("a") + b"W", px=60_000)
    before = queue.state()

    queue.settle(**report(entry, ("retry", NOW + 4000, raw)))

    assert changed(before, queue.state()) == {
        "stream": None,
        "pending": {"stream": {"w": []}},
        "scheduled": {"a": NOW + 4000},
        "jobs": {"a": "a/2"},
        "locks": {"t:x": "a S 60s"},
        "ids": {"i": "a W 86404s"},
        "records": {"a": f"retrying 2 {NOW}, 86404s"},
        "stats": {"retrying": 1},
        "calls": {"w": 1},
    }


def test_jobs_handed_back_stand_in_front_above_all_other_ids(queue: Queue, running: Callable[..., bytes]) -> None:
    future = f"{NOW * 2}-7"
    queue.client.xadd(queue.keys.suspects, {b"f": message("s")}, id=future)
    entry = running("a", "b", "c")
    before = queue.state()

    queue.settle(**report(entry, ("back", 2, message("b") + message("c")), ("back", 1, message("a"))))

    assert changed(before, queue.state()) == {
        "stream": None,
        "front": ["b c", "a"],
        "pending": {"stream": {"w": []}},
        "stats": {"waiting": 3},
        "calls": {"w": 1},
    }
    ids = [entry_id.decode() for entry_id, _ in queue.client.xrange(queue.keys.front)]
    assert ids == [f"{NOW * 2}-8", f"{NOW * 2}-9"]
    # What is enqueued next has a higher fence than what came back.
    assert queue.client.xadd(queue.keys.stream, {b"f": message("later")}).decode() == f"{NOW * 2}-10"


def test_a_tracked_job_that_is_handed_back_waits_again(queue: Queue, running: Callable[..., bytes]) -> None:
    entry = running(message("a", tracked=True))
    queue.client.set(queue.keys.job(uid("a")), b"running 1 1")

    queue.settle(**report(entry, ("back", 1, message("a", tracked=True))))

    assert queue.client.get(queue.keys.job(uid("a"))) == f"waiting 1 {NOW}".encode()


def test_a_suspect_that_is_handed_back_stays_in_its_lane(queue: Queue, running: Callable[..., bytes]) -> None:
    suspect, other = message("a", crashes=2), message("b", crashes=1)
    entry = running(suspect, stream="suspects")

    queue.settle(done=([], [], [entry]), finished=[entry], outcomes=[("back", 1, suspect), ("back", 1, other)])

    assert queue.state("front", "suspects") == {"suspects": ["a*2"], "front": ["b*1"]}  # behind * stand the crashes


def test_a_repeat_of_a_call_is_answered_and_changes_nothing(queue: Queue, running: Callable[..., bytes]) -> None:
    entry = running(message("a", lock="x"), "b", "c")
    queue.hold("x", "other")
    everything = report(
        entry,
        ("retry", NOW + 1000, message("b", attempt=2)),
        ("back", 1, message("c")),
        uids=uid("a"),
        locks=[queue.lock("x")],
        counters={"succeeded": 1},
        handed_out=3,
    )
    assert queue.settle(number=5, **everything) == 1
    before = queue.state()

    assert queue.settle(number=5, **everything) == 1

    assert queue.state() == before


def test_a_call_that_comes_after_a_later_one_is_refused(queue: Queue, running: Callable[..., bytes]) -> None:
    entry = running("a")
    queue.settle(number=2)
    before = queue.state()

    with pytest.raises(BrokerError, match="settle call 1 came after a later one"):
        queue.settle(number=1, **report(entry))

    assert queue.state() == before


@pytest.mark.parametrize("beat", [None, -1], ids=["a stranger", "fenced"])
def test_a_worker_whom_the_queue_does_not_know_settles_nothing(
    queue: Queue, running: Callable[..., bytes], beat: int | None
) -> None:
    entry = running(message("a", lock="x"))
    queue.hold("x", "a")
    if beat is None:
        queue.client.zrem(queue.keys.consumers, "w")
    else:
        queue.client.zadd(queue.keys.consumers, {"w": beat})
    before = queue.state()

    with pytest.raises(WorkerFenced, match="no longer knows worker w"):
        queue.settle(**report(entry, ("dead", message("a"), ""), uids=uid("a"), locks=[queue.lock("x")]))

    assert queue.state() == before


def test_a_job_of_another_version_goes_dead_whole(queue: Queue, running: Callable[..., bytes]) -> None:
    raw = message("a", lock="x", version=2)
    entry = running(raw)

    queue.settle(**report(entry, ("dead", raw, "unknown message version 2")))

    assert queue.state("dead", "why", "jobs") == {
        "dead": {"a": NOW},
        "why": {"a": "unknown message version 2"},
        "jobs": {"a": "a"},
    }
    assert queue.client.hget(queue.keys.jobs, uid("a")) == raw


def test_settling_goes_on_without_memory(start_server: Callable[..., Server], namespace: str) -> None:
    server = start_server()
    queue = Queue(server.url, namespace, server.client())
    queue.join("w")
    entries = [queue.add("a"), queue.add("b"), queue.add("c")]
    queue.read("w")
    queue.client.config_set("maxmemory", 1)

    queue.settle(
        done=(entries, [], []),
        outcomes=[("retry", NOW + 9000, message("a", attempt=2)), ("dead", message("b"), ""), ("back", 1, message("c"))],
    )

    assert queue.state("scheduled", "dead", "front", "stream") == {
        "scheduled": {"a": NOW + 9000},
        "dead": {"b": NOW},
        "front": ["c"],
    }
    queue.broker.close()


def test_thousands_of_ends_fit_in_one_call(queue: Queue, running: Callable[..., bytes]) -> None:
    labels = [f"j{i}" for i in range(2500)]
    pipeline = queue.client.pipeline(transaction=False)
    for label in labels:
        pipeline.xadd(queue.keys.stream, {b"f": message(label)})
        pipeline.set(queue.lock(label), uid(label) + b"W", px=60_000)
    pipeline.execute()
    entries = queue.read("w", count=3000)

    lost = queue.settle(done=(entries, [], []), uids=b"".join(map(uid, labels)), locks=[queue.lock(label) for label in labels])

    assert lost == 0
    assert queue.state("stream", "locks", "pending") == {"pending": {"stream": {"w": []}}}
