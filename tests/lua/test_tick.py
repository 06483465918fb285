"""tick.lua: due jobs are promoted, silent workers judged, old dead jobs pruned."""

import pytest

from fastq.broker.requests import WorkerFenced
from tests.lua.conftest import LEASE, Queue
from tests.support.builders import NOW, message, uid
from tests.support.state import changed


def schedule(queue: Queue, due_ms: int, *messages: bytes) -> None:
    for raw in messages:
        queue.client.zadd(queue.keys.scheduled, {raw[10:26]: due_ms})
        queue.client.hset(queue.keys.jobs, raw[10:26], raw)


def watched(queue: Queue) -> None:
    """Somebody has ticked until now, so that silence counts."""
    queue.client.set(queue.keys.watch, queue.now - 1500)


# --- promotion


def test_due_jobs_are_promoted_in_order_into_frames(queue: Queue) -> None:
    queue.join()
    schedule(queue, NOW - 5, message("b"))
    schedule(queue, NOW - 9, message("a", attempt=2))
    schedule(queue, NOW, message("c"))
    schedule(queue, NOW + 700, message("later"))

    tick = queue.tick()

    assert (tick.promoted, tick.due_in, tick.more) == (3, 0.7, False)
    assert queue.state("stream", "scheduled", "jobs", "stats") == {
        "stream": ["a/2 b c"],
        "scheduled": {"later": NOW + 700},
        "jobs": {"later": "later"},
        "stats": {"waiting": 3, "retrying": -1},
    }


def test_promotion_is_bounded_and_says_that_there_is_more(queue: Queue) -> None:
    queue.join()
    schedule(queue, NOW, *(message(f"j{i}") for i in range(5)))

    tick = queue.tick(limit=2)

    assert (tick.promoted, tick.due_in, tick.more) == (2, 0.0, True)
    assert len(queue.state()["scheduled"]) == 3


def test_a_scheduled_job_without_a_message_is_counted_and_holds_up_nobody(queue: Queue) -> None:
    queue.join()
    queue.client.zadd(queue.keys.scheduled, {uid("lost"): NOW - 1})
    schedule(queue, NOW, message("a"))

    tick = queue.tick()

    assert (tick.promoted, tick.lost) == (1, 1)
    assert queue.state("stream", "scheduled", "stats") == {"stream": ["a"], "stats": {"waiting": 1, "lost": 1}}


def test_the_wake_entry_is_taken_away(queue: Queue) -> None:
    queue.join()
    wake = queue.client.xadd(queue.keys.stream, {b"w": b""})
    queue.client.set(queue.keys.wake, wake)
    queue.read("w")

    assert queue.tick().due_in is None

    assert queue.state("stream", "wake", "pending") == {"pending": {"stream": {"w": []}}}


# --- judging


def test_a_silent_worker_is_fenced_and_its_jobs_come_back(queue: Queue) -> None:
    queue.join("w")
    queue.join("silent")
    half = queue.add("a", "b", "c")
    queue.read("silent")
    queue.client.hset(queue.keys.progress, half, b"\x02")
    queue.now += LEASE + 1
    queue.client.zadd(queue.keys.consumers, {"w": queue.now})
    watched(queue)

    tick = queue.tick("w")

    assert (tick.reclaimed, tick.lost, tick.more) == (2, 0, False)
    assert queue.state() == {
        "front": ["a*1", "c*1"],
        "consumers": {"w": queue.now},
        "watch": str(queue.now),
        "stats": {"fenced": 1, "reclaimed": 2, "waiting": 2},
    }


def test_a_worker_whose_beat_is_as_old_as_the_lease_still_lives(queue: Queue) -> None:
    queue.join("w")
    queue.join("slow")
    queue.add("a")
    queue.read("slow")
    queue.now += LEASE
    watched(queue)

    assert queue.tick("w").reclaimed == 0

    assert queue.state()["consumers"]["slow"] == NOW


def test_nobody_is_judged_for_a_time_in_which_no_one_ticked(queue: Queue) -> None:
    """The server was frozen, or away: everyone was silent, through no fault of their own."""
    queue.join("w")
    queue.join("other")
    queue.add("a")
    queue.read("other")
    queue.client.zadd(queue.keys.consumers, {"fenced": -1})
    queue.client.set(queue.keys.watch, NOW)
    queue.now += 2 * LEASE
    before = queue.state()

    assert queue.tick("w").reclaimed == 0

    assert changed(before, queue.state()) == {
        "consumers": {"fenced": -1, "w": queue.now, "other": queue.now},
        "watch": str(queue.now),
    }


def test_a_clock_that_went_back_judges_nobody_who_beats(queue: Queue) -> None:
    queue.join("w")
    queue.join("other")
    queue.client.set(queue.keys.watch, NOW + 50_000)

    queue.tick("w")

    assert queue.state("consumers", "watch") == {"consumers": {"w": NOW, "other": NOW}, "watch": str(NOW)}


def test_a_consumer_that_never_joined_is_emptied_too(queue: Queue) -> None:
    queue.join("w")
    queue.add("a")
    queue.read("stranger")
    watched(queue)

    assert queue.tick("w").reclaimed == 1

    assert queue.state("front", "pending", "consumers") == {"front": ["a*1"], "consumers": {"w": NOW}}


def test_much_to_take_back_is_taken_in_bounded_calls(queue: Queue) -> None:
    queue.join("w")
    for i in range(5):
        queue.add(f"j{i}")
    queue.read("gone")
    watched(queue)

    first = queue.tick("w", limit=2)
    rest = [queue.tick("w", limit=2), queue.tick("w", limit=2)]

    assert (first.reclaimed, first.more) == (2, True)
    assert [(tick.reclaimed, tick.more) for tick in rest] == [(2, True), (1, False)]
    assert queue.state("pending", "consumers") == {"consumers": {"w": NOW}}


@pytest.mark.parametrize(
    ("crashes", "expected"),
    [
        (0, {"front": ["a*1"]}),
        (1, {"suspects": ["a*2"]}),
        (2, {"suspects": ["a*3"]}),
        (3, {"dead": {"a": NOW}, "jobs": {"a": "a*4"}, "why": {"a": "worker lost: 4 workers died with this job in hand"}}),
        (255, {"dead": {"a": NOW}, "jobs": {"a": "a*255"}, "why": {"a": "worker lost: 256 workers died with this job in hand"}}),
    ],
)
def test_a_job_whose_workers_die_becomes_a_suspect_and_then_dead(queue: Queue, crashes: int, expected: dict[str, object]) -> None:
    queue.join("w")
    queue.hold("x", "a")
    queue.add(message("a", lock="x", crashes=crashes), stream="suspects" if crashes > 1 else "stream")
    for stream in ("stream", "suspects"):
        queue.read("gone", stream=stream)
    watched(queue)

    queue.tick("w", max_crashes=3)

    assert queue.state("front", "suspects", "dead", "jobs", "why") == expected
    assert queue.state("locks") == ({} if "dead" in expected else {"locks": {"t:x": "a W 60s"}})


def test_jobs_that_come_back_stand_above_every_id_of_the_queue(queue: Queue) -> None:
    queue.join("w")
    future = f"{NOW * 2}-3"
    queue.client.xadd(queue.keys.stream, {b"f": message("a") + message("b") + b"corrupt"}, id=future)
    queue.read("gone")
    watched(queue)

    queue.tick("w")

    ids = [entry_id.decode() for entry_id, _ in queue.client.xrange(queue.keys.front)]
    assert ids == [f"{NOW * 2}-{sequence}" for sequence in (4, 5, 6)]
    assert queue.client.xinfo_stream(queue.keys.stream)["last-generated-id"].decode() == ids[-1]


def corrupt_flags() -> bytes:
    """A message that announces fields which are not there."""
    raw = message("flags", args=())
    return raw[:5] + b"\x1f" + raw[6:]


@pytest.mark.parametrize(
    ("body", "front"),
    [
        (b"", []),
        (b"\x01", ["?1"]),
        (b"\xff" * 40, ["?40"]),
        (message("a") + b"\x00" * 48, ["a*1", "?48"]),
        (message("a") + message("b")[:-1], ["a*1", "?-"]),
        (message("new", version=2), ["new*1"]),
        (corrupt_flags(), ["?-"]),
    ],
    ids=["empty", "a byte", "noise", "zeros behind a job", "cut short", "another version", "fields announced"],
)
def test_corrupt_entries_come_back_for_a_worker_to_bury(queue: Queue, body: bytes, front: list[str]) -> None:
    queue.join("w")
    queue.client.xadd(queue.keys.stream, {b"f": body})
    queue.read("gone")
    watched(queue)

    queue.tick("w")

    found = queue.state().get("front", [])
    assert [word if "-" not in wanted else "?-" for word, wanted in zip(found, front, strict=True)] == front
    assert queue.state("stream", "pending") == {}


def test_noise_that_looks_like_a_job_of_many_crashes_is_kept_among_the_dead(queue: Queue) -> None:
    queue.join("w")
    queue.client.xadd(queue.keys.stream, {b"f": b"\xff" * 100})
    queue.read("gone")
    watched(queue)

    assert queue.tick("w").reclaimed == 0

    assert queue.client.hget(queue.keys.jobs, b"\xff" * 16) == b"\xff" * 100
    assert queue.state("stream", "front", "pending") == {}


def test_corrupt_messages_can_die_without_failing_the_tick(queue: Queue) -> None:
    queue.join("w")
    raw = corrupt_flags()
    queue.add(raw[:6] + b"\xff" + raw[7:])
    queue.add("good")
    queue.read("gone")
    watched(queue)

    assert queue.tick("w").reclaimed == 1

    assert queue.state("front", "dead") == {"front": ["good*1"], "dead": {"flags": NOW}}


def test_an_entry_that_has_lost_its_body_is_counted_as_lost(queue: Queue) -> None:
    queue.join("w")
    gone = queue.add("a")
    queue.add("b")
    queue.read("silent")
    queue.client.xdel(queue.keys.stream, gone)
    watched(queue)

    tick = queue.tick("w")

    assert (tick.reclaimed, tick.lost) == (1, 1)
    assert queue.state("front", "pending") == {"front": ["b*1"]}


@pytest.mark.parametrize("beat", [None, -1], ids=["a stranger", "fenced"])
def test_a_worker_whom_the_queue_does_not_know_may_not_tick(queue: Queue, beat: int | None) -> None:
    queue.join("other")
    if beat is not None:
        queue.client.zadd(queue.keys.consumers, {"w": beat})
    schedule(queue, NOW - 1, message("a"))
    before = queue.state()

    with pytest.raises(WorkerFenced):
        queue.tick("w")

    assert queue.state() == before


# --- pruning


def bury(queue: Queue, raw: bytes, died_ms: int) -> None:
    queue.client.zadd(queue.keys.dead, {raw[10:26]: died_ms})
    queue.client.hset(queue.keys.jobs, mapping={raw[10:26]: raw, raw[10:26] + b"!": b"why"})
    queue.client.hincrby(queue.keys.stats, "dead_bytes", len(raw))


SIZE = len(message("a", job_id="i"))


@pytest.mark.parametrize(
    ("bounds", "left"),
    [
        ({}, ["a", "b", "c"]),
        ({"dead_jobs": 2}, ["b", "c"]),
        ({"dead_jobs": 0}, []),
        ({"dead_bytes": 2 * SIZE}, ["b", "c"]),
        ({"dead_bytes": SIZE - 1}, []),
        ({"dead_ms": 1500}, ["c"]),
    ],
    ids=["within bounds", "too many", "none is kept", "too large", "far too large", "too old"],
)
def test_the_oldest_dead_jobs_go_first_when_there_are_too_many(queue: Queue, bounds: dict[str, int], left: list[str]) -> None:
    queue.join()
    for age, name in ((3000, "a"), (2000, "b"), (1000, "c")):
        bury(queue, message(name, job_id=name), NOW - age)
        queue.client.set(queue.keys.id(name), uid(name) + b"W")
    watched(queue)

    queue.tick(**bounds)

    state = queue.state()
    for part in ("dead", "jobs", "why", "ids"):
        assert sorted(state.get(part, {})) == left
    assert state["stats"].get("dead_bytes", 0) == SIZE * len(left)
    assert state["stats"].get("pruned", 0) == 3 - len(left)


def test_pruning_is_bounded(queue: Queue) -> None:
    queue.join()
    for i in range(150):
        bury(queue, message(f"j{i:03}"), NOW - 1000 + i)
    watched(queue)

    queue.tick(dead_jobs=0)

    assert len(queue.state()["dead"]) == 50
