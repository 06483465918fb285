"""enqueue.lua: a job's lock, its id and its message are written together or not at all."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from fastq.broker.requests import Request, enqueue, plain_frame, single, unique_frame
from fastq.broker.talk import ServerError
from fastq.errors import BrokerError, QueueFull
from fastq.keys import QueueKeys
from tests.lua.conftest import Queue
from tests.support.builders import NOW, frame, message, uid
from tests.support.servers import Server
from tests.support.state import changed, snapshot

T = TypeVar("T")


def plain(*labels: str) -> list[object]:
    return plain_frame(frame(*labels), len(labels))


def unique(queue: Queue, **locks: str) -> list[object]:
    """A frame of jobs by label, with the lock of each."""
    messages = [message(label, lock=lock) for label, lock in locks.items()]
    values = b"".join(uid(label) + b"W" for label in locks)
    return unique_frame(frame(*messages), len(messages), 60_000, values, [queue.lock(lock) for lock in locks.values()])


def one(queue: Queue, label: str, *, lock: str = "", job_id: str = "", delay_ms: int = 0, tracked: bool = False) -> list[object]:
    due = NOW + delay_ms if delay_ms else 0
    return single(
        message(label, lock=lock, job_id=job_id, due_ms=due, tracked=tracked),
        due_ms=due,
        lock_key=queue.lock(lock) if lock else b"",
        lock_ttl_ms=60_000 + delay_ms if lock else 0,
        id_key=queue.keys.id(job_id) if job_id else b"",
        id_ttl_ms=86_400_000 + delay_ms if job_id else 0,
        track_ms=86_400_000 + delay_ms if tracked else 0,
    )


def numbered(request: Request[T], number: int) -> Request[T]:
    """The same call under a lane and number that the test chooses."""
    return replace(request, args=(b"lane", number, *request.args), laned=False)


def told(refusals: list[object]) -> list[tuple[object, ...]]:
    return [(r.index, r.kind, r.uid.rstrip(b".").decode(), r.state) for r in refusals]  # type: ignore[attr-defined]


def test_plain_frames_are_added_as_they_come(queue: Queue) -> None:
    refusals = queue.enqueue(plain("a", "b"), plain("c"), jobs=3, laned=False)

    assert refusals == []
    assert queue.state() == {"stream": ["a b", "c"], "stats": {"enqueued": 3, "waiting": 3}}


def test_a_frame_of_unique_jobs_takes_all_its_locks_and_stays_one_frame(queue: Queue) -> None:
    refusals = queue.enqueue(unique(queue, a="x", b="y"), jobs=2)

    assert refusals == []
    assert queue.state("stream", "locks", "stats") == {
        "stream": ["a b"],
        "locks": {"t:x": "a W 60s", "t:y": "b W 60s"},
        "stats": {"enqueued": 2, "waiting": 2},
    }


def test_a_frame_with_duplicates_is_rebuilt_without_them(queue: Queue) -> None:
    queue.hold("y", "earlier", state="R")

    refusals = queue.enqueue(unique(queue, a="x", b="y", c="z", d="x"), jobs=4)

    assert told(refusals) == [(1, "duplicate", "earlier", "running"), (3, "duplicate", "a", "waiting")]
    assert [59 < refusal.expires_in <= 60 for refusal in refusals] == [True, True]
    assert queue.state("stream", "locks", "stats") == {
        "stream": ["a c"],
        "locks": {"t:x": "a W 60s", "t:y": "earlier R 60s", "t:z": "c W 60s"},
        "stats": {"enqueued": 2, "waiting": 2, "refused": 2, "refused:t": 2},
    }


def test_frames_before_and_behind_one_with_a_duplicate_are_added_as_they_came(queue: Queue) -> None:
    queue.hold("held", "earlier")
    groups = [plain("a"), unique(queue, b="x", c="y"), unique(queue, d="z", e="held", f="w"), plain("g"), unique(queue, h="v")]

    refusals = queue.enqueue(*groups, one(queue, "i", lock="held"), jobs=9)

    assert told(refusals) == [(4, "duplicate", "earlier", "waiting"), (8, "duplicate", "earlier", "waiting")]
    assert queue.state("stream", "locks", "stats") == {
        "stream": ["a", "b c", "d f", "g", "h"],
        "locks": {
            "t:x": "b W 60s", "t:y": "c W 60s", "t:z": "d W 60s", "t:held": "earlier W 60s", "t:w": "f W 60s", "t:v": "h W 60s",
        },
        "stats": {"enqueued": 7, "waiting": 7, "refused": 2, "refused:t": 2},
    }  # fmt: skip


def test_a_frame_of_which_all_are_duplicates_adds_nothing(queue: Queue) -> None:
    queue.hold("x", "earlier")

    assert told(queue.enqueue(unique(queue, a="x", b="x"), jobs=2)) == [
        (0, "duplicate", "earlier", "waiting"),
        (1, "duplicate", "earlier", "waiting"),
    ]
    assert queue.state("stream", "locks", "stats") == {
        "locks": {"t:x": "earlier W 60s"},
        "stats": {"refused": 2, "refused:t": 2},
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"lock": "x"}, {"stream": ["a"], "locks": {"t:x": "a W 60s"}, "stats": {"enqueued": 1, "waiting": 1}}),
        ({"job_id": "i"}, {"stream": ["a"], "ids": {"i": "a W 86400s"}, "stats": {"enqueued": 1, "waiting": 1}}),
        (
            {"tracked": True},
            {"stream": ["a"], "records": {"a": f"waiting 1 {NOW}, 86400s"}, "stats": {"enqueued": 1, "waiting": 1}},
        ),
        (
            {"lock": "x", "job_id": "i", "tracked": True, "delay_ms": 5000},
            {
                "scheduled": {"a": NOW + 5000},
                "jobs": {"a": "a"},
                "locks": {"t:x": "a S 65s"},
                "ids": {"i": "a S 86405s"},
                "records": {"a": f"scheduled 1 {NOW}, 86405s"},
                "stats": {"enqueued": 1},
            },
        ),
        ({"delay_ms": 5000}, {"scheduled": {"a": NOW + 5000}, "jobs": {"a": "a"}, "stats": {"enqueued": 1}}),
    ],
    ids=["lock", "id", "tracked", "all of it, delayed", "delayed"],
)
def test_a_single_job_is_written_with_all_that_belongs_to_it(
    queue: Queue, options: dict[str, object], expected: dict[str, object]
) -> None:
    assert queue.enqueue(one(queue, "a", **options)) == []  # type: ignore[arg-type]

    state = queue.state()
    assert list(state.pop("lanes").values()) == [1]
    assert state == expected


def test_singles_that_follow_each_other_share_a_frame(queue: Queue) -> None:
    queue.enqueue(one(queue, "a", lock="x"), one(queue, "b"), plain("c"), one(queue, "d", job_id="i"), jobs=4)

    assert queue.state("stream") == {"stream": ["a b", "c", "d"]}


def test_singles_fill_frames_of_64_jobs_and_64_kib(queue: Queue) -> None:
    many = [one(queue, f"m{i}") for i in range(65)]
    large = [single(message(f"l{i}", args=["x" * 30_000])) for i in range(3)]

    queue.enqueue(*many, *large)

    assert [entry.count(" ") + 1 for entry in queue.state("stream")["stream"]] == [64, 3, 1]


def test_an_id_in_use_is_a_conflict_and_leaves_no_lock(queue: Queue) -> None:
    queue.client.set(queue.keys.id("i"), uid("earlier") + b"S", px=30_000)
    queue.hold("y", "other")

    refusals = queue.enqueue(one(queue, "a", lock="x", job_id="i"), one(queue, "b", lock="y", job_id="j"))

    assert told(refusals) == [(0, "conflict", "earlier", "scheduled"), (1, "duplicate", "other", "waiting")]
    assert queue.state("locks", "ids", "stream") == {"locks": {"t:y": "other W 60s"}, "ids": {"i": "earlier S 30s"}}


@pytest.mark.parametrize(
    ("delay_ms", "wakes"), [(1999, True), (2000, False)], ids=["sooner than 2 s", "when a tick comes in time anyway"]
)
def test_a_job_that_is_due_soon_wakes_an_idle_worker_once(queue: Queue, delay_ms: int, wakes: bool) -> None:
    queue.enqueue(one(queue, "a", delay_ms=delay_ms))
    if wakes:
        queue.enqueue(one(queue, "b", delay_ms=delay_ms - 1))  # the entry that stands is enough

    assert queue.state("stream", "wake") == ({"stream": ["(wake)"], "wake": True} if wakes else {})


def test_a_later_job_wakes_nobody(queue: Queue) -> None:
    queue.enqueue(one(queue, "a", delay_ms=3000))
    queue.client.zadd(queue.keys.scheduled, {uid("first"): NOW + 100})

    queue.enqueue(one(queue, "b", delay_ms=200))

    assert queue.state("stream", "wake") == {}


def test_a_full_queue_takes_all_of_a_call_or_nothing(queue: Queue) -> None:
    queue.enqueue(plain("a", "b"), one(queue, "c", delay_ms=5000), jobs=3)
    before = queue.state()

    with pytest.raises(QueueFull, match="holds 3 jobs, its max_queue is 4") as full:
        queue.enqueue(plain("d", "e"), jobs=2, max_queue=4)

    assert (full.value.queue, full.value.waiting) == ("q", 3)
    assert queue.state() == before
    assert queue.enqueue(plain("d"), jobs=1, max_queue=4) == []


def test_a_repeat_of_a_numbered_call_is_answered_and_changes_nothing(queue: Queue) -> None:
    queue.hold("y", "earlier")
    request = enqueue(queue.keys, [unique(queue, a="x", b="y"), one(queue, "c", delay_ms=5000)], 3, laned=True, now=NOW)
    first = queue.call(numbered(request, 7))
    before = queue.state()
    queue.client.delete(queue.lock("x"), queue.lock("y"))  # even if all of it has ended meanwhile

    again = queue.call(numbered(request, 7))

    assert again == first
    assert told(again) == [(1, "duplicate", "earlier", "waiting")]
    assert changed(before, queue.state()) == {"locks": None}


def test_a_call_that_comes_after_a_later_one_of_its_lane_is_refused(queue: Queue) -> None:
    request = enqueue(queue.keys, [plain("a", "b")], 2, laned=True, now=NOW)
    queue.call(numbered(request, 2))
    before = queue.state()

    with pytest.raises(BrokerError, match="a later call of the same producer"):
        queue.call(numbered(request, 1))

    assert queue.state() == before


@pytest.mark.parametrize("broken", ["stream", "stats", "jobs"])
def test_a_key_of_the_wrong_type_fails_the_call_and_leaves_no_lock(queue: Queue, broken: str) -> None:
    queue.client.set(getattr(queue.keys, broken), "something else")
    group = one(queue, "a", lock="x", job_id="i", delay_ms=5000 if broken == "jobs" else 0)

    with pytest.raises(ServerError, match="shared with another program") as error:
        queue.enqueue(group, max_queue=100)

    assert error.value.code == "WRONGTYPE"
    queue.client.delete(getattr(queue.keys, broken))
    assert queue.state("locks", "ids", "stream") == {}


def test_locks_are_given_back_when_the_stream_cannot_be_written(queue: Queue) -> None:
    queue.client.set(queue.keys.stream, "something else")

    with pytest.raises(ServerError):
        queue.enqueue(unique(queue, a="x", b="y"), jobs=2)

    queue.client.delete(queue.keys.stream)
    assert queue.state("locks") == {}


def test_the_script_is_sent_again_to_a_server_that_has_lost_it(queue: Queue) -> None:
    queue.enqueue(plain("a"))
    queue.client.script_flush()

    queue.enqueue(plain("b"))

    assert queue.state("stream") == {"stream": ["a", "b"]}


def test_a_server_without_memory_refuses_before_anything_is_written(start_server: Callable[..., Server], namespace: str) -> None:
    server = start_server()
    client = server.client()
    queue = Queue(server.url, namespace, client)
    queue.enqueue(one(queue, "a", lock="x"))
    queue.join()
    done = queue.read()
    client.config_set("maxmemory", 1)
    before = queue.state()

    with pytest.raises(ServerError, match="Redis is out of memory: nothing was written") as error:
        queue.enqueue(unique(queue, b="y"), one(queue, "c", lock="z", job_id="i", delay_ms=100), jobs=2)

    assert error.value.code == "OOM"
    assert queue.state() == before
    # Settling goes on, and frees memory.
    queue.settle(done=(done, [], []), finished=done, uids=uid("a"), locks=[queue.lock("x")])
    assert queue.state("stream", "locks") == {}
    queue.broker.close()


def test_a_call_at_its_bounds_is_short(queue: Queue) -> None:
    """1,000 plain jobs, or 200 with a lock, are what a call may carry."""
    groups = [plain(*(f"p{i}" for i in range(start, start + 50))) for start in range(0, 1000, 50)]
    locks = [unique(queue, **{f"u{i}": f"k{i}" for i in range(start, start + 50)}) for start in range(0, 200, 50)]
    queue.client.config_resetstat()

    queue.enqueue(*groups, jobs=1000)
    queue.enqueue(*locks, jobs=200)

    state = queue.state("stats", "locks")
    assert (state["stats"], len(state["locks"])) == ({"enqueued": 1200, "waiting": 1200}, 200)
    calls = queue.client.info("commandstats")["cmdstat_evalsha"]
    assert calls["usec"] < 200_000  # a few ms, on a machine that does nothing else


def test_namespaces_and_queues_do_not_meet(queue: Queue) -> None:
    other = QueueKeys(queue.keys.namespace, "r")
    queue.enqueue(one(queue, "a", lock="x"))

    assert snapshot(queue.client, other) == {}
