"""What other queues are known to get wrong with locks; every one of these has cost somebody a job or a day."""

from typing import Any

import pytest

from fastq import DuplicateJobError, FastQ, JobIDConflictError, Unique
from fastq.config import DeadBounds
from tests.support.process import wait_until
from tests.support.queues import ids, locks, waiting
from tests.unique.stage import TTL, Stage, serving
from tests.unique.world import POLICIES, World


@pytest.mark.parametrize("end", ["succeeded", "dropped", "cancelled", "dead", "retry"])
@pytest.mark.parametrize(("until", "on_conflict", "renew"), POLICIES)
def test_a_finished_job_s_worker_deletes_the_lock_of_its_successor(
    world: World, until: str, on_conflict: str, renew: bool, end: str
) -> None:
    policy = (until, on_conflict, renew)
    world.enqueue("x", policy)
    worker = world.join()
    world.fetch(worker)
    [first] = worker.jobs
    world.start(worker, first)
    world.evict("x")
    world.enqueue("x", policy)
    successor = world.look().locks["x"]

    world.end(worker, first, end)

    assert world.look().locks["x"] == successor
    world.check()


def test_the_lock_is_taken_but_the_enqueue_fails(start_server: Any, namespace: str) -> None:
    server = start_server()
    client = server.client()
    with FastQ(server.url, namespace=namespace) as app:
        task: Any = app.task(name="t", unique=Unique(TTL, "key"))(lambda key: None)
        # The stream is of another type: the script finds out when it has the locks already.
        client.set(f"{namespace}:{{default}}:stream", "")
        with pytest.raises(Exception, match="something else"):
            task.enqueue("a")
        with pytest.raises(Exception, match="something else"):
            task.enqueue_many([("b",), ("c",)])
        client.delete(f"{namespace}:{{default}}:stream")

        assert locks(client, namespace) == {}
        assert task.enqueue_many([("a",), ("b",), ("c",)]).enqueued == 3


@pytest.mark.parametrize(("until", "on_conflict", "renew"), POLICIES)
def test_a_retry_meets_its_own_lock(stage: Stage, until: str, on_conflict: str, renew: bool) -> None:
    task, key = stage.task(until, on_conflict, renew), stage.key()
    job = task.enqueue(key)
    stage.run_of(key, 1).fail()

    retry = stage.run_of(key, 2)

    assert (retry.uid, retry.attempt) == (job.uid, 2)
    retry.end()
    if until != "ttl":
        stage.wait_free(task, key)


@pytest.mark.parametrize("until", ["done", "success"])
def test_a_replay_from_the_dead_ignores_or_collides_with_a_live_duplicate(stage: Stage, until: str) -> None:
    task, key = stage.task(until), stage.key()
    job = task.using(retries=0).enqueue(key)
    stage.run_of(key, 1).fail()
    stage.wait_dead(job)
    if until == "success":
        stage.app.locks.release(task, key)
    live = task.enqueue(key)

    assert [refusal.reason for refusal in stage.app.queue().dead.replay(job.uid).refused] == ["lock held"]

    stage.run_of(key, 2).end()
    stage.wait_free(task, key)
    assert [run.uid for run in stage.of(key)] == [job.uid, live.uid]
    assert stage.app.queue().dead.get(job.uid) is not None, "it is still there to be replayed"


@pytest.mark.parametrize("delay", [0, 0.2])
def test_cancelling_leaves_a_tombstone_that_blocks_the_next_job(stage: Stage, delay: float) -> None:
    task, key = stage.task(), stage.key()
    with stage.paused("third"):
        task.using(queue="third", delay=delay).enqueue(key).cancel()
    stage.wait_free(task.using(queue="third"), key)
    assert not stage.of(key)

    job = task.using(queue="third").enqueue(key)

    assert stage.run_of(key).uid == job.uid
    stage.let(key)
    stage.wait_free(task.using(queue="third"), key)


def test_a_reaper_deletes_a_live_lock(world: World) -> None:
    for key, renew in (("x", False), ("y", True)):
        world.enqueue(key, ("done", "raise", renew))
    worker = world.join()
    world.fetch(worker)
    for uid in list(worker.jobs):
        world.start(worker, uid)
    before = world.look().locks

    for _ in range(20):
        world.tick(worker, 60_000)

    assert world.look().locks == before


@pytest.mark.parametrize(("until", "on_conflict", "renew"), POLICIES)
def test_the_promotion_of_a_delayed_job_is_refused_by_its_own_lock(
    stage: Stage, until: str, on_conflict: str, renew: bool
) -> None:
    task, key = stage.task(until, on_conflict, renew), stage.key()

    job = task.using(delay=0.05).enqueue(key)

    run = stage.run_of(key)
    assert run.uid == job.uid
    run.end()


@pytest.mark.parametrize("how", ["purge", "pruning of the dead", "id conflict"])
def test_purge_trimming_or_an_id_conflict_forgets_to_release_a_lock(idle_stage: Any, how: str) -> None:
    stage = idle_stage(max_dead=DeadBounds(jobs=1))
    task = stage.task("success")
    if how == "purge":
        task.enqueue_many([(f"k{number}",) for number in range(100)])
        task.using(delay=60).enqueue("later")
        assert stage.app.queue().purge() == 101
        assert locks(stage.client, stage.namespace) == {}
    elif how == "id conflict":
        stage.app.tasks["plain"].using(job_id="i").enqueue("k")
        with pytest.raises(JobIDConflictError):
            task.using(job_id="i").enqueue("k")
        assert locks(stage.client, stage.namespace) == {}
    else:
        for key in ("a", "b", "c"):
            task.using(retries=0, job_id=key).enqueue(key)
        with serving(stage.app):
            for key in ("a", "b", "c"):
                stage.run_of(key).fail()
            wait_until(lambda: len(locks(stage.client, stage.namespace)) == 1)
        assert len(ids(stage.client, stage.namespace)) == 1
    assert len(waiting(stage.client, stage.namespace)) == (how == "id conflict")


def test_a_duplicate_of_a_job_that_waits_for_its_lock_s_end_names_the_one_that_holds_it(stage: Stage) -> None:
    task, key = stage.task("ttl"), stage.key()
    job = task.enqueue(key)
    stage.run_of(key).end()
    stage.wait_state(task, key, "ended")

    with pytest.raises(DuplicateJobError, match="has ended in queue 'default' already") as caught:
        task.enqueue(key)

    assert caught.value.job_uid == job.uid
