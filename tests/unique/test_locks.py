"""Looking at locks: `app.locks`, the counters, and what a job sees of its own."""

import asyncio
from typing import Any

import pytest

from fastq import DuplicateJobError, Unique, UniqueConfigError
from fastq.locks import LockCounts
from tests.unique.stage import TTL, Stage


def test_a_lock_tells_its_task_key_holder_state_age_and_seconds_left(stage: Stage) -> None:
    task, key = stage.task("done", "rerun"), stage.key()
    assert stage.lock(task, key) is None
    job = task.using(delay=0.5).enqueue(key)

    scheduled = stage.lock(task, key)
    run = stage.run_of(key)
    running = stage.wait_state(task, key, "running")

    assert scheduled is not None
    assert (scheduled.task, scheduled.job_uid, scheduled.state) == (task.name, job.uid, "scheduled")
    assert scheduled.key == running.key == task.route.key_of((key,), {}).partition(b":")[2].decode()
    assert 0 <= scheduled.age <= running.age < 30
    assert running.age >= 0.4
    assert TTL - 30 < running.expires_in < scheduled.expires_in <= TTL + 0.5
    run.end()
    stage.wait_free(task, key)


def test_the_locks_of_a_task_are_listed_page_by_page(idle_stage: Any) -> None:
    stage = idle_stage()
    odd = stage.define("odd.task:x/y", Unique(TTL, lambda key, change: key))
    stage.define("odd.task:x/yz", Unique(TTL, lambda key, change: key)).enqueue("not one of them")
    odd.using(queue="other").enqueue("elsewhere")
    keys = {f"key:{number}*" for number in range(250)}
    odd.enqueue_many([(key,) for key in keys])

    async def alist() -> Any:
        try:
            return await stage.app.locks.alist(odd)
        finally:
            await stage.app.aclose()

    found = stage.app.locks.list(odd)

    assert {lock.key for lock in found} == keys
    assert {(lock.task, lock.state) for lock in found} == {("odd.task:x/y", "waiting")}
    assert {lock.key for lock in asyncio.run(alist())} == keys
    assert len(stage.app.locks.list(odd, limit=7)) == 7
    assert [lock.key for lock in stage.app.locks.list(odd.using(queue="other"))] == ["elsewhere"]
    assert stage.app.locks.list("odd.task:x/y", limit=1000) != []
    assert stage.app.locks.list(stage.app.tasks["plain"]) == []


def test_listing_asks_the_server_for_no_more_than_a_page_at_a_time(idle_stage: Any) -> None:
    stage = idle_stage()
    stage.task().enqueue_many([(f"k{number}",) for number in range(500)])
    before = stage.client.info("commandstats")

    stage.app.locks.list(stage.task())

    after, none = stage.client.info("commandstats"), {"calls": 0}

    def calls(command: str) -> int:
        return after.get(f"cmdstat_{command}", none)["calls"] - before.get(f"cmdstat_{command}", none)["calls"]

    assert calls("keys") == 0
    assert calls("scan") > 0


def test_a_lock_can_be_released_by_hand_and_its_job_goes_on(stage: Stage) -> None:
    task, key = stage.task(), stage.key()
    task.enqueue(key, 1)
    run = stage.run_of(key)

    assert stage.app.locks.release(task, key)
    assert not stage.app.locks.release(task, key)

    task.enqueue(key, 2)
    stage.run_of(key, 2).end()
    run.end()
    stage.wait_free(task, key)


def test_a_task_without_a_lock_has_none_to_look_at(stage: Stage) -> None:
    with pytest.raises(UniqueConfigError, match="not unique"):
        stage.app.locks.get(stage.app.tasks["plain"], "k")


def test_refusals_and_lost_locks_are_counted_by_task(stage: Stage) -> None:
    counts = stage.app.locks.counts
    for on_conflict, expected in [
        ("raise", LockCounts(2, 0, 0, 0, 0)),
        ("skip", LockCounts(0, 2, 0, 0, 0)),
        ("replace", LockCounts(0, 0, 1, 1, 0)),
        ("rerun", LockCounts(0, 0, 0, 2, 0)),
    ]:
        task, key = stage.task("success", on_conflict), stage.key()
        before = counts(task)
        task.using(delay=0.4).enqueue(key)
        for turn in range(2):
            if turn:
                stage.run_of(key)
            try:
                task.enqueue(key) if turn else task.using(delay=0.4).enqueue(key)
            except DuplicateJobError:
                assert on_conflict == "raise"
        assert LockCounts(*(after - then for after, then in zip(counts(task), before, strict=True))) == expected
        stage.let(key)
        stage.wait_free(task, key)

    task, key = stage.task("success"), stage.key()
    before = counts(task)
    task.enqueue(key)
    run = stage.run_of(key)
    stage.app.locks.release(task, key)
    run.end()
    stage.wait_settled()
    assert counts(task).lost == before.lost + 1
    assert asyncio.run(_acounts(stage, task)) == counts(task)


async def _acounts(stage: Stage, task: Any) -> LockCounts:
    try:
        return await stage.app.locks.acounts(task)
    finally:
        await stage.app.aclose()


def test_a_job_sees_its_lock_and_a_fence_that_grows_with_every_delivery(stage: Stage) -> None:
    fences = []
    for until, seen in (("done", True), ("success", True), ("start", False), ("ttl", True)):
        task, key = stage.task(until), stage.key()
        task.using(retries=1).enqueue(key)
        for attempt in (1, 2):
            run = stage.run_of(key, attempt)
            fences.append(run.fence)
            lock = run.job.lock
            assert (lock is not None) == seen
            if lock is not None:
                assert lock.key == task.route.key_of((key,), {}).partition(b":")[2].decode()
                assert TTL - 30 < lock.expires_in <= TTL
            run.fail() if attempt == 1 else run.end()
    task, key = stage.app.tasks["plain"], stage.key()
    task.enqueue(key)
    run = stage.run_of(key)
    assert run.job.lock is None
    run.end()

    assert fences == sorted(set(fences))
    assert run.fence > fences[-1]


def test_a_replayed_job_and_one_that_was_left_to_rerun_see_the_true_end_of_their_locks(stage: Stage) -> None:
    brief = Unique(2, "key", on_conflict="rerun")
    task, key = stage.task("done", "rerun").using(unique=brief, retries=0), stage.key()
    job = task.enqueue(key, 1)
    first = stage.run_of(key)
    task.enqueue(key, 2)
    first.fail()
    second = stage.run_of(key, 2)
    told, lock = second.job.lock, stage.lock(task, key)
    assert told is not None
    assert lock is not None
    assert abs(told.expires_in - lock.expires_in) < 0.1
    second.end()
    stage.wait_free(task, key)

    assert stage.app.queue().dead.replay(job.uid).replayed == 1

    third = stage.run_of(key, 3)
    told, lock = third.job.lock, stage.lock(task, key)
    assert told is not None
    assert lock is not None
    assert abs(told.expires_in - lock.expires_in) < 0.1
    third.end()
