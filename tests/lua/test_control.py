"""The scripts that operators and callers use: cancel, gate, status, counts, replay, delete, purge."""

import pytest

from fastq.broker import inspection, requests
from tests.lua.conftest import Queue
from tests.support.builders import NOW, message, uid
from tests.support.state import changed

WEEK = 7 * 86_400_000


def schedule(queue: Queue, due: int, raw: bytes) -> None:
    queue.client.zadd(queue.keys.scheduled, {raw[10:26]: due})
    queue.client.hset(queue.keys.jobs, raw[10:26], raw)


def bury(queue: Queue, *raws: bytes, died: int = NOW - 1000) -> None:
    for place, raw in enumerate(raws):
        queue.client.zadd(queue.keys.dead, {raw[10:26]: died + place})
        queue.client.hset(queue.keys.jobs, raw[10:26], raw)
        queue.client.hincrby(queue.keys.stats, "dead_bytes", len(raw))


def cancel(queue: Queue, label: str = "", job_id: str = "") -> bool:
    return queue.call(requests.cancel(queue.keys, uid(label) if label else b"", job_id, now=queue.now))


# --- cancel


def test_a_scheduled_job_is_cancelled_here_and_now_with_all_that_it_held(queue: Queue) -> None:
    schedule(queue, NOW + 5000, message("a", lock="x", until="ttl", job_id="i", tracked=True, due_ms=NOW + 5000))
    queue.hold("x", "a", state="S")
    queue.client.set(queue.keys.id("i"), uid("a") + b"S", px=60_000)

    assert cancel(queue, "a")

    assert queue.state() == {
        "records": {"a": f"cancelled 1 {NOW}, 3600s"},
        "results": {"a": "cancelled"},
        "stats": {"cancelled": 1, "cancelled:t": 1},
    }


def test_a_retrying_job_that_is_cancelled_had_been_started_and_lets_its_window_run_on(queue: Queue) -> None:
    schedule(queue, NOW + 5000, message("a", lock="x", until="ttl", attempt=2))
    queue.hold("x", "a", state="S")
    queue.client.hset(queue.keys.stats, "retrying", 1)

    assert cancel(queue, "a")

    assert queue.state() == {
        "locks": {"t:x": "a E 60s"},
        "stats": {"cancelled": 1, "cancelled:t": 1, "retrying": 0},
    }


def test_of_any_other_job_the_wish_is_kept_and_the_gate_closed(queue: Queue) -> None:
    queue.add("a", "b")

    assert not cancel(queue, "a")

    assert queue.state() == {"stream": ["a b"], "cancelled": {"a": NOW}, "gate": "cancelled"}


def test_a_job_may_be_named_by_its_id(queue: Queue) -> None:
    queue.client.set(queue.keys.id("i"), uid("a") + b"W")

    assert not cancel(queue, job_id="i")
    assert not cancel(queue, job_id="nobody's")

    assert queue.state("cancelled") == {"cancelled": {"a": NOW}}


@pytest.mark.parametrize("state", ["succeeded", "dropped", "expired", "cancelled", "dead"])
def test_a_wish_that_comes_too_late_is_not_kept(queue: Queue, state: str) -> None:
    if state == "dead":
        bury(queue, message("a"))
    else:
        queue.client.set(queue.keys.job(uid("a")), f"{state} 1 {NOW}")

    assert not cancel(queue, "a")

    assert queue.state("cancelled", "gate") == {}


def test_wishes_are_kept_for_a_week_and_no_more_than_100_000(queue: Queue) -> None:
    queue.client.zadd(queue.keys.cancelled, {b"old": NOW - WEEK})
    queue.client.zadd(queue.keys.cancelled, {b"%05d" % n: NOW - 100_000 + n for n in range(100_000)})

    cancel(queue, "a")

    assert queue.client.zcard(queue.keys.cancelled) == 100_000
    assert queue.client.zscore(queue.keys.cancelled, b"old") is None
    assert queue.client.zscore(queue.keys.cancelled, b"00000") is None
    assert queue.client.zscore(queue.keys.cancelled, uid("a")) == NOW


# --- pause and resume


def test_a_pause_outlives_wishes_to_cancel_and_a_resume_goes_back_to_them(queue: Queue) -> None:
    cancel(queue, "a")
    assert queue.call(requests.pause(queue.keys))
    cancel(queue, "b")
    assert queue.state("gate") == {"gate": "paused"}

    assert queue.call(requests.resume(queue.keys))

    assert queue.state("gate") == {"gate": "cancelled"}
    assert not queue.call(requests.resume(queue.keys))


# --- status


def test_a_status_tells_the_first_that_is_known_of_a_job(queue: Queue) -> None:
    schedule(queue, NOW, message("s"))
    schedule(queue, NOW, message("r", attempt=2))
    bury(queue, message("d"))
    queue.client.set(queue.keys.job(uid("t")), f"running 1 {NOW}")
    queue.hold("x", "l", state="R")
    queue.hold("y", "m", state="W")
    queue.hold("z", "e", state="E")

    def known(label: str, lock: bytes = b"") -> str:
        return queue.call(requests.status(queue.keys, uid(label), "", lock)).state

    assert [known(label) for label in "srdt?"] == ["scheduled", "retrying", "dead", "running", ""]
    assert (known("l", b"t:x"), known("m", b"t:y"), known("m", b"t:x"), known("l")) == ("running", "waiting", "", "")
    assert known("e", b"t:z") == "", "it has ended, and its lock lives on"


# --- replay and delete


def test_a_replay_begins_anew_with_lock_id_and_record(queue: Queue) -> None:
    bury(queue, message("a", lock="x", job_id="i", tracked=True, attempt=4, crashes=2), message("b", attempt=3))
    queue.client.hset(queue.keys.jobs, uid("b") + b"!", "worker lost")
    queue.client.xadd(queue.keys.result(uid("a")), {"s": "dead"})
    queue.client.set(queue.keys.id("i"), uid("a") + b"R")

    assert queue.call(requests.replay(queue.keys, [uid("a"), uid("?"), uid("b")], now=NOW)) == [1, 0, 1]

    assert queue.state() == {
        "stream": ["a b"],
        "locks": {"t:x": "a W 60s"},
        "ids": {"i": "a W 86400s"},
        "records": {"a": f"waiting 1 {NOW}, 604800s"},
        "stats": {"dead_bytes": 0, "replayed": 2, "waiting": 2},
    }


@pytest.mark.parametrize(
    ("lock", "holder", "parked", "answer"),
    [("x", None, None, 1), ("x", "a", None, 1), ("x", "b", None, 2), ("x", "a", "p", 2), ("x", None, "p", 2)],
    ids=["free", "its own", "another's", "its own, with one parked", "free, with one parked"],
)
def test_a_lock_is_taken_by_a_replay_only_if_nobody_else_has_or_awaits_it(
    queue: Queue, lock: str, holder: str | None, parked: str | None, answer: int
) -> None:
    bury(queue, message("a", lock=lock, until="success"))
    if holder:
        queue.hold(lock, holder)
    if parked:
        queue.client.rpush(queue.keys.parked(b"t:x"), message(parked, lock=lock, renew=True))
    before = queue.state()

    assert queue.call(requests.replay(queue.keys, [uid("a")], now=NOW)) == [answer]

    if answer == 2:
        assert changed(before, queue.state()) == {}


def test_an_id_that_another_job_has_keeps_a_job_dead(queue: Queue) -> None:
    bury(queue, message("a", job_id="i", lock="x"))
    queue.client.set(queue.keys.id("i"), uid("b") + b"W")
    before = queue.state()

    assert queue.call(requests.replay(queue.keys, [uid("a")], now=NOW)) == [3]

    assert changed(before, queue.state()) == {}


@pytest.mark.parametrize("due", [0, NOW + 1000])
def test_a_replayed_job_has_as_long_to_its_start_as_it_had(queue: Queue, due: int) -> None:
    bury(queue, message("a", lock="x", job_id="i", due_ms=due, expires_in_ms=7000, retention_ms=5))

    queue.call(requests.replay(queue.keys, [uid("a")], now=NOW + 60_000))

    from fastq.codec import Message

    [(_, fields)] = queue.client.xrange(queue.keys.stream)
    again = Message(fields[b"f"])
    assert (again.expires_ms, again.due_ms, again.retention_ms) == (NOW + 67_000, due or None, 5)


def test_calls_end_early_behind_large_jobs(queue: Queue) -> None:
    large = [message(label, args=[b"x" * 700_000]) for label in "abc"]
    bury(queue, *large)
    uids = [uid(label) for label in "abc"]

    assert queue.call(requests.replay(queue.keys, uids, now=NOW)) == [1, 1]
    bury(queue, *large)
    assert queue.call(requests.delete(queue.keys, uids, now=NOW)) == (2, 2)
    assert list(queue.state("dead")["dead"]) == ["c"]


def test_bytes_among_the_dead_that_only_look_like_a_message_get_an_entry_of_their_own(queue: Queue) -> None:
    noise = b"\xff\xff\x00\x00" + message("n")[4:]
    bury(queue, message("a"), noise, message("b"))

    assert queue.call(requests.replay(queue.keys, [uid("a"), uid("n"), uid("b")], now=NOW)) == [1, 1, 1]

    assert sorted(queue.state("stream")["stream"]) == sorted([f"?{len(noise)}", "a b"])


# --- purge


def test_a_purge_is_bounded_and_says_that_there_is_more(queue: Queue) -> None:
    queue.add("a", "b", "c")
    queue.add("d")
    queue.add("e", stream="front")
    schedule(queue, NOW, message("f", attempt=2))
    queue.client.hset(queue.keys.stats, mapping={"waiting": 5, "retrying": 1})

    assert queue.call(requests.purge(queue.keys, limit=3, now=NOW)) == (5, True)
    assert queue.call(requests.purge(queue.keys, limit=3, now=NOW)) == (1, False)

    assert queue.state("stream", "front", "scheduled", "jobs", "stats") == {
        "stats": {"waiting": 0, "retrying": 0, "purged": 6}
    }


def test_a_purge_leaves_what_was_handed_out_and_frees_the_locks_of_the_rest(queue: Queue) -> None:
    queue.join()
    queue.add(message("a", lock="x"))
    queue.read()
    queue.add(message("b", lock="y", until="ttl", job_id="i", retention_ms=60_000))
    queue.hold("x", "a")
    queue.hold("y", "b")
    queue.client.set(queue.keys.id("i"), uid("b") + b"W")

    assert queue.call(requests.purge(queue.keys, now=NOW)) == (1, False)

    assert queue.state("stream", "locks", "ids") == {"stream": ["a"], "locks": {"t:x": "a W 60s"}}


# --- counts


def test_jobs_in_hand_are_counted_by_frame_and_progress_and_estimated_beyond_a_bound(queue: Queue) -> None:
    queue.join()
    entry = queue.add("a", "b", "c", "d")
    queue.add("e")
    queue.add("f", "g", "h", stream="front")
    queue.read()
    queue.read(stream="front")
    queue.client.hset(queue.keys.progress, entry, b"\x03")
    queue.add("waits")

    assert queue.call(inspection.counts(queue.keys)).in_hand == 6

    from dataclasses import replace

    two = replace(inspection.counts(queue.keys), args=(2,))
    assert queue.call(two).in_hand == round((3 + 2) * 3 / 2)
