"""When a lock goes: the rows of the table of `until`. Each test's name is a row, its parameters are the columns.

"released" means that the next call gets in; "kept" that it is refused, by the same holder.
"""

import time
from typing import Any

import pytest

from fastq import Drop, DuplicateJobError, Job
from tests.unique.stage import TTL, Stage
from tests.unique.world import KEYS, POLICIES, World


def columns(**expected: str) -> Any:
    """A row: what becomes of the lock by `until`; with `renew` where both go together."""
    rows = [(until, renew, what) for until, what in expected.items() for renew in (False, True)]
    return pytest.mark.parametrize(
        ("until", "renew", "expected"), [row for row in rows if (row[0], "raise", row[1]) in POLICIES]
    )


def judge(stage: Stage, task: Any, key: str, holder: Job, expected: str) -> None:
    """Whether a second call finds the lock as expected. Of a lock that is kept no more than its TTL is left."""
    if expected == "released":
        stage.wait_free(task, key)
        assert not task.enqueue(key).duplicate
        return
    with pytest.raises(DuplicateJobError) as caught:
        task.enqueue(key)
    assert caught.value.job_uid == holder.uid
    assert TTL - 30 < caught.value.expires_in <= TTL


@pytest.mark.parametrize("how", ["succeeded", "dropped"])
@columns(done="released", success="released", start="released", ttl="kept")
def test_the_job_succeeded_or_dropped(stage: Stage, how: str, until: str, renew: bool, expected: str) -> None:
    task, key = stage.task(until, renew=renew), stage.key()
    job = task.enqueue(key)
    run = stage.run_of(key)
    if until == "start":
        assert stage.lock(task, key) is None, "it is gone since the start"

    run.end() if how == "succeeded" else run.fail(Drop("not needed"))
    if expected == "kept":
        stage.wait_state(task, key, "ended")

    stage.let(key)
    judge(stage, task, key, job, expected)


@columns(done="released", success="kept", start="released", ttl="kept")
def test_the_job_is_dead(stage: Stage, until: str, renew: bool, expected: str) -> None:
    task, key = stage.task(until, renew=renew), stage.key()
    job = task.enqueue(key)

    stage.run_of(key, 1).fail()
    stage.run_of(key, 2).fail()
    stage.wait_dead(job)

    if expected == "kept":
        assert stage.wait_state(task, key, "dead").job_uid == job.uid
    stage.let(key)
    judge(stage, task, key, job, expected)


@columns(done="kept", success="kept", start="free", ttl="kept")
def test_an_attempt_fails_and_a_retry_follows(stage: Stage, until: str, renew: bool, expected: str) -> None:
    task, key = stage.task(until, renew=renew), stage.key()
    job = task.using(retries=1).enqueue(key)
    stage.run_of(key, 1).fail()
    retry = stage.run_of(key, 2)

    if expected == "kept":
        with pytest.raises(DuplicateJobError) as caught:
            task.enqueue(key)
        assert caught.value.job_uid == job.uid
    else:
        assert stage.lock(task, key) is None
    assert (retry.uid, retry.attempt) == (job.uid, 2)
    stage.let(key)


@pytest.mark.parametrize("how", ["cancelled", "expired"])
def test_cancelled_or_expired_before_its_first_start(stage: Stage, how: str) -> None:
    """Released in every column."""
    calls = [
        (stage.task(until, renew=renew).using(queue="third"), stage.key())
        for until, on_conflict, renew in POLICIES
        if on_conflict == "raise"
    ]
    with stage.paused("third"):
        for task, key in calls:
            job = task.using(expires=0.01 if how == "expired" else None).enqueue(key)
            if how == "cancelled":
                job.cancel()
        time.sleep(0.02)  # it is their expiry that is waited for

    for task, key in calls:
        stage.wait_free(task, key)
        assert not stage.of(key), "it has not run"
        stage.let(key)
        assert not task.enqueue(key).duplicate


@columns(done="released", success="kept", ttl="kept")
def test_cancelled_while_running(stage: Stage, until: str, renew: bool, expected: str) -> None:
    task, key = stage.task(until, renew=renew), stage.key()
    job = task.enqueue(key)
    run = stage.run_of(key)

    assert not job.cancel()
    run.wait_ended()

    if expected == "kept":
        stage.wait_state(task, key, "ended")
    stage.let(key)
    judge(stage, task, key, job, expected)


@pytest.mark.parametrize(("until", "state"), [("done", None), ("success", "E"), ("ttl", "E")])
def test_expired_at_a_retry(world: World, until: str, state: str | None) -> None:
    world.enqueue("x", (until, "raise", False))
    worker = world.join()
    world.fetch(worker)
    [uid] = worker.jobs
    world.start(worker, uid)
    world.end(worker, uid, "retry")
    world.tick(worker, 5000)
    world.fetch(worker)

    world.end(worker, uid, "expired")

    assert world.look().locks == ({} if state is None else {"x": (uid, state)})


@pytest.mark.parametrize("what", ["dead job deleted", "queue purged"])
@columns(done="released", success="released", start="released", ttl="released")
def test_dead_job_deleted_or_queue_purged(world: World, what: str, until: str, renew: bool, expected: str) -> None:
    world.enqueue(KEYS[0], (until, "raise", renew), delay=0 if what == "dead job deleted" else 1000)
    world.enqueue(KEYS[1], (until, "raise", renew))
    if what == "queue purged":
        world.purge()
    else:
        worker = world.join()
        world.fetch(worker, 10)
        for uid in list(worker.jobs):
            world.start(worker, uid)
            world.end(worker, uid, "dead")
            world.delete(uid)

    assert world.look().locks == {}
