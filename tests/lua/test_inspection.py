"""The scripts that operators' commands read with, and what they may put right."""

from fastq.broker import inspection
from tests.lua.conftest import Queue
from tests.support.builders import NOW, message, uid


def note(queue: Queue) -> dict[bytes, dict[bytes, bytes]]:
    """The counters that ticks have noted, by their minute."""
    prefix = queue.keys.stats + b":"
    return {key.removeprefix(prefix): queue.client.hgetall(key) for key in queue.client.scan_iter(match=prefix + b"*")}


# --- pace


def test_a_tick_notes_the_counters_once_a_minute_for_two_hours(queue: Queue) -> None:
    queue.join()
    queue.client.hset(queue.keys.stats, mapping={"enqueued": 7, "succeeded": 5, "enqueued:t": 7})
    queue.tick()
    queue.client.hset(queue.keys.stats, "enqueued", 9)
    queue.tick()

    minute = b"%d" % (NOW // 60_000)
    assert note(queue) == {minute: {b"at": b"%d" % NOW, b"enqueued": b"7", b"succeeded": b"5"}}
    assert 7_100_000 < queue.client.pttl(queue.keys.stats + b":" + minute) <= 7_200_000

    queue.now += 60_000
    queue.client.zadd(queue.keys.consumers, {"w": queue.now})
    queue.tick()
    assert len(note(queue)) == 2


def test_a_queue_in_which_nothing_has_happened_gets_no_note(queue: Queue) -> None:
    queue.join()
    queue.tick()

    assert note(queue) == {}


def test_the_pace_tells_the_oldest_wait_and_the_counters_of_a_while_ago(queue: Queue) -> None:
    queue.add("a", "b")
    queue.add("c", stream="front")
    for minutes, enqueued in ((7, 1), (3, 2), (1, 3)):
        key = queue.keys.stats + b":%d" % (NOW // 60_000 - minutes)
        queue.client.hset(key, mapping={"at": NOW - minutes * 60_000, "enqueued": enqueued})

    pace = queue.call(inspection.pace(queue.keys, now=NOW + 2500))

    assert (pace.now_ms, pace.oldest_ms, pace.past) == (NOW + 2500, 2500, {"at": NOW - 180_000, "enqueued": 2})


def test_a_job_in_hand_and_the_wake_entry_do_not_wait(queue: Queue) -> None:
    queue.join()
    queue.add("a")
    queue.read()
    queue.client.xadd(queue.keys.stream, {b"w": b""})

    assert queue.call(inspection.pace(queue.keys)).oldest_ms == -1
    queue.add("b", stream="suspects")
    assert queue.call(inspection.pace(queue.keys, now=NOW + 10)).oldest_ms == 10


# --- what should not be there


def test_jobs_that_wait_are_recounted_in_parts(queue: Queue) -> None:
    queue.join()
    queue.add("taken")
    queue.read()
    queue.add("a", "b")
    last = queue.add("c")
    queue.client.xadd(queue.keys.stream, {b"w": b""})
    queue.add("f", stream="front")

    assert queue.call(inspection.recount(queue.keys, "stream", entries=2)) == (3, last)
    assert queue.call(inspection.recount(queue.keys, "stream", last, entries=2)) == (0, b"")
    assert queue.call(inspection.recount(queue.keys, "front")) == (1, b"")


def test_a_lock_is_an_orphan_only_if_its_job_can_be_nowhere(queue: Queue) -> None:
    queue.hold("scheduled", "s", state="S")
    queue.client.zadd(queue.keys.scheduled, {uid("s"): NOW})
    queue.hold("unscheduled", "u", state="S")
    queue.hold("waiting", "w", state="W")
    queue.hold("ended", "e", state="E")
    queue.hold("parked", "p", state="R")
    queue.client.rpush(queue.keys.parked(b"t:parked"), message("q"))
    queue.hold("pending", "r", state="R")
    queue.client.hset(queue.keys.pending, uid("r"), message("x"))
    names = [f"t:{key}".encode() for key in ("scheduled", "unscheduled", "waiting", "ended", "parked", "pending", "none")]

    entry = queue.add("somebody")
    assert queue.call(inspection.orphaned_locks(queue.keys, names, release=False)) == [b"t:unscheduled"]

    # With nothing in the streams nothing waits or runs.
    queue.client.xdel(queue.keys.stream, entry)
    assert queue.call(inspection.orphaned_locks(queue.keys, names, release=True)) == [b"t:unscheduled", b"t:waiting"]
    assert [queue.client.exists(queue.keys.unique(name)) for name in names] == [1, 0, 0, 1, 1, 1, 0]


def test_progress_is_stray_when_its_entry_is_gone(queue: Queue) -> None:
    here, gone = queue.add("a", "b", stream="front"), b"1-1"
    queue.client.hset(queue.keys.progress, mapping={here: b"\1", gone: b"\1"})

    assert queue.call(inspection.stray_progress(queue.keys, b"0", delete=False)) == (b"0", 1)
    assert queue.client.hlen(queue.keys.progress) == 2
    assert queue.call(inspection.stray_progress(queue.keys, b"0", delete=True)) == (b"0", 1)
    assert queue.client.hkeys(queue.keys.progress) == [here]
