"""What a call gets while the lock is held: `skip`, `replace` and `rerun`, with a holder in every state and of every policy.

A change is a call's argument; the laws are that the last one is seen by a run that started after it, and that no two runs
overlap.
"""

import itertools
import time
from typing import Any

import pytest

from fastq import Job, ResultUnavailable, Unique
from tests.support.process import wait_until
from tests.support.queues import arguments, scheduled
from tests.unique.stage import TTL, Stage, serving
from tests.unique.world import POLICIES, World, payload

RENEW = pytest.mark.parametrize("renew", [False, True], ids=["fixed", "renew"])
LAST = pytest.mark.parametrize("on_conflict", ["replace", "rerun"])


def met(job: Job) -> tuple[str, bool, str | None]:
    """What a call met: the holder, whether it is one, and what came of the call."""
    return job.uid, job.duplicate, job.conflict


def changes(stage: Stage, key: str) -> list[int]:
    """The changes that the runs of a key have seen."""
    return [run.change for run in stage.of(key)]


def never_overlapped(stage: Stage, key: str) -> bool:
    """Whether each run of a key began after the one before had ended."""
    runs = stage.of(key)
    return all(one.ended is not None and one.ended <= other.began for one, other in itertools.pairwise(runs))


# --- skip


@RENEW
@pytest.mark.parametrize("until", ["done", "success"])
def test_skip_gives_the_holder_s_job_and_its_one_run(stage: Stage, until: str, renew: bool) -> None:
    task, key = stage.task(until, "skip", renew), stage.key()
    holder = task.enqueue(key, 1)
    run = stage.run_of(key)

    assert met(task.enqueue(key, 2)) == (holder.uid, True, "skipped")

    run.end()
    stage.wait_free(task, key)
    assert changes(stage, key) == [1]


def test_skip_shares_the_result_of_the_one_run(stage: Stage) -> None:
    task, key = stage.app.tasks["skip.result"], stage.key()
    holder, others = task.enqueue(key), [task.enqueue(key) for _ in range(3)]
    bulk = task.enqueue_many([(key,), (key,)])

    stage.run_of(key).end({"answer": 42})

    assert [job.result(timeout=10) for job in (holder, *others, *bulk)] == [{"answer": 42}] * 6
    assert [duplicate.outcome for duplicate in bulk.duplicates] == ["skipped", "skipped"]


def test_skip_of_a_holder_that_keeps_no_result_raises_at_once_instead_of_waiting_for_ever(stage: Stage) -> None:
    task, key = stage.task("done", "skip"), stage.key()
    task.enqueue(key)
    run = stage.run_of(key)

    with pytest.raises(ResultUnavailable, match="keeps no result"):
        task.enqueue(key).result()

    run.end()


@pytest.mark.parametrize("until", ["start", "ttl"])
def test_skip_under_the_other_locks(stage: Stage, until: str) -> None:
    task, key = stage.task(until, "skip"), stage.key()
    first = task.using(delay=0.4).enqueue(key, 1)
    assert met(task.enqueue(key, 2)) == (first.uid, True, "skipped")
    run = stage.run_of(key)

    second = task.enqueue(key, 3)

    assert second.duplicate == (until == "ttl")
    if until == "start":
        stage.run_of(key, 2).end()
    run.end()


# --- replace and rerun, by the state of the holder


@RENEW
@pytest.mark.parametrize("until", ["done", "success"])
def test_replace_gives_a_scheduled_holder_the_new_arguments_due_time_and_ttl(idle_stage: Any, until: str, renew: bool) -> None:
    stage = idle_stage()
    task = stage.task(until, "replace", renew)
    holder = task.using(delay=100, expires=5).enqueue("k", 1)
    [(due, before)] = scheduled(stage.client, stage.namespace)

    assert met(task.using(delay=1000, unique=Unique(2 * TTL, "key", until, "replace", renew)).enqueue("k", 2)) == (
        holder.uid, True, "replaced",
    )  # fmt: skip

    [(later, message)] = scheduled(stage.client, stage.namespace)
    assert (message.uid, message.enqueued_at) == (holder.raw_uid, before.enqueued_at)
    assert (arguments(message), message.expires_ms) == ([["k", 2], {}], None)
    assert 899_000 < later - due < 960_000
    assert message.due_ms == later
    lock = stage.lock(task, "k")
    assert lock is not None
    assert lock.expires_in > 1000 + 2 * TTL - 60


def test_replace_debounces_until_the_calls_stop(stage: Stage) -> None:
    task, key = stage.task("done", "replace"), stage.key()
    for change in range(5):
        task.using(delay=0.3).enqueue(key, change)

    run = stage.run_of(key)
    run.end()
    stage.wait_free(task, key)

    assert changes(stage, key) == [4]


def test_max_wait_counts_from_the_first_call(idle_stage: Any) -> None:
    stage = idle_stage()
    task = stage.task("done", "replace").using(unique=Unique(TTL, "key", on_conflict="replace", max_wait=60))
    holder = task.using(delay=50).enqueue("k", 1)
    [(_, first)] = scheduled(stage.client, stage.namespace)

    task.using(delay=50).enqueue("k", 2)
    [(due, _)] = scheduled(stage.client, stage.namespace)
    assert due <= first.enqueued_at + 60_000
    task.using(delay=500).enqueue("k", 3)

    [(due, message)] = scheduled(stage.client, stage.namespace)
    assert due == message.due_ms == first.enqueued_at + 60_000
    assert (message.uid, arguments(message)) == (holder.raw_uid, [["k", 3], {}])


def test_replace_without_a_delay_lets_a_scheduled_holder_run_now(stage: Stage) -> None:
    task, key = stage.task("done", "replace"), stage.key()
    holder = task.using(delay=3600).enqueue(key, 1)

    assert met(task.enqueue(key, 2)) == (holder.uid, True, "replaced")

    run = stage.run_of(key)
    assert (run.uid, run.change) == (holder.uid, 2)
    run.end()


def test_replace_leaves_a_scheduled_holder_its_id_its_retention_and_its_record(idle_stage: Any) -> None:
    stage = idle_stage()
    holder = stage.task().using(delay=100, job_id="i", retention=7).enqueue("k", 1)
    task = stage.task().using(unique=Unique(TTL, "key", on_conflict="replace"))

    assert met(task.using(delay=500, retries=9).enqueue("k", 2)) == (holder.uid, True, "replaced")

    [(_, message)] = scheduled(stage.client, stage.namespace)
    assert (message.job_id, message.retention_ms, message.tracked) == ("i", 7000, True)
    assert (message.extras, arguments(message)) == ({"retries": 9}, [["k", 2], {}])
    assert stage.client.pttl(stage.keys().id("i")) > 86_400_000 + 400_000
    assert holder.status() == "scheduled"
    assert holder.cancel()
    assert 0 < stage.client.pttl(stage.keys().id("i")) <= 7000
    assert stage.lock(task, "k") is None


def test_a_holder_that_waits_runs_with_the_latest_arguments(stage: Stage) -> None:
    policies = [policy for policy in POLICIES if policy[1] in ("replace", "rerun")]
    calls = [(stage.task(*policy).using(queue="third"), stage.key(), policy[1]) for policy in policies]
    holders = {}
    with stage.paused("third"):
        for task, key, on_conflict in calls:
            holders[key] = task.enqueue(key, 1).uid
            outcomes = [met(task.enqueue(key, change)) for change in (2, 3, 4)]
            assert outcomes == [(holders[key], True, "replaced" if on_conflict == "replace" else "rerun")] * 3

    for task, key, _ in calls:
        run = stage.run_of(key)
        run.end()
        stage.wait_free(task, key)
        assert (run.uid, changes(stage, key)) == (holders[key], [4])
    assert len(calls) == 8


def test_rerun_leaves_the_due_time_of_a_scheduled_holder_alone(stage: Stage) -> None:
    task, key = stage.task("done", "rerun"), stage.key()
    holder = task.using(delay=0.3).enqueue(key, 1)

    assert met(task.using(delay=3600).enqueue(key, 2)) == (holder.uid, True, "rerun")

    run = stage.run_of(key)
    assert (run.uid, run.change) == (holder.uid, 2)
    run.end()
    stage.wait_free(task, key)


@RENEW
@LAST
@pytest.mark.parametrize("until", ["done", "success"])
@pytest.mark.parametrize("end", ["success", "death", "cancel"])
def test_a_holder_that_runs_leaves_the_latest_call_to_a_new_job(
    stage: Stage, until: str, on_conflict: str, renew: bool, end: str
) -> None:
    task, key = stage.task(until, on_conflict, renew), stage.key()
    holder = task.using(retries=0).enqueue(key, 1)
    first = stage.run_of(key)

    outcomes = [met(task.enqueue(key, change)) for change in (2, 3, 4)]
    assert outcomes == [(holder.uid, True, "rerun")] * 3
    if end == "cancel":
        holder.cancel()
    elif end == "death":
        first.fail()
    else:
        first.end()
    second = stage.run_of(key, 2)

    lock = stage.lock(task, key)
    assert lock is not None
    assert (second.change, second.attempt, lock.job_uid) == (4, 1, second.uid)
    assert second.uid != first.uid
    second.end()
    stage.wait_free(task, key)
    assert changes(stage, key) == [1, 4]
    assert never_overlapped(stage, key)


@LAST
@RENEW
def test_a_retry_takes_the_latest_arguments_first(stage: Stage, on_conflict: str, renew: bool) -> None:
    task, key = stage.task("done", on_conflict, renew).using(retries=1), stage.key()
    holder = task.enqueue(key, 1)
    stage.run_of(key, 1).fail()
    if on_conflict == "rerun":
        task.enqueue(key, 2)
    else:
        stage.wait_state(task, key, "retrying", timeout=2)
        task.enqueue(key, 2)

    second = stage.run_of(key, 2)

    assert (second.uid, second.change, second.attempt) == (holder.uid, 2, 2)
    second.end()
    stage.wait_free(task, key)
    assert changes(stage, key) == [1, 2]


@LAST
def test_a_replayed_holder_takes_the_latest_arguments_first(idle_stage: Any, on_conflict: str) -> None:
    stage = idle_stage()
    task = stage.task("done", on_conflict)
    holder = task.using(retries=0).enqueue("k", 1)
    with serving(stage.app):
        stage.run_of("k").fail()
        stage.wait_dead(holder)
    stage.app.queue().dead.replay(holder.uid)

    assert met(task.enqueue("k", 2))[0] == holder.uid

    with serving(stage.app):
        second = stage.run_of("k", 2)
        second.end()
        stage.wait_free(task, "k")
    assert (second.uid, changes(stage, "k")) == (holder.uid, [1, 2])


@LAST
@pytest.mark.parametrize("until", ["success", "ttl"])
def test_a_holder_that_has_ended_hands_nothing_on_so_the_call_gets_its_lock(stage: Stage, on_conflict: str, until: str) -> None:
    kept, key = stage.task(until), stage.key()
    holder = kept.using(retries=0).enqueue(key, 1)
    run = stage.run_of(key)
    run.fail() if until == "success" else run.end()
    stage.wait_state(kept, key, "dead" if until == "success" else "ended")

    job = kept.using(unique=Unique(TTL, "key", on_conflict=on_conflict)).enqueue(key, 2)

    assert not job.duplicate
    second = stage.run_of(key, 2)
    assert (second.uid, second.change) == (job.uid, 2)
    assert second.uid != holder.uid
    second.end()
    stage.wait_free(kept, key)


@pytest.mark.parametrize("end", ["cancel", "purge"])
# A scheduled holder of "replace" has the new arguments itself: they go with it.
@pytest.mark.parametrize(("state", "on_conflict"), [("scheduled", "rerun"), ("waiting", "rerun"), ("waiting", "replace")])
def test_a_holder_that_is_taken_out_before_it_started_leaves_the_call_to_a_new_job(
    idle_stage: Any, on_conflict: str, end: str, state: str
) -> None:
    stage = idle_stage()
    task = stage.task("done", on_conflict)
    holder = task.using(delay=60 if state == "scheduled" else 0).enqueue("k", 1)
    task.enqueue("k", 2)

    if end == "purge":
        stage.app.queue().purge()
    else:
        holder.cancel()

    with serving(stage.app):
        run = stage.run_of("k")
        run.end()
        stage.wait_free(task, "k")
    assert changes(stage, "k") == [2]
    assert run.uid != holder.uid


def test_a_holder_that_expires_leaves_the_call_to_a_new_job(stage: Stage) -> None:
    task, key = stage.task("done", "rerun").using(queue="third"), stage.key()
    with stage.paused("third"):
        holder = task.using(expires=0.01).enqueue(key, 1)
        task.enqueue(key, 2)
        time.sleep(0.05)  # it is its expiry that is waited for

    run = stage.run_of(key)

    assert (run.change, run.uid == holder.uid) == (2, False)
    run.end()
    stage.wait_free(task, key)
    assert changes(stage, key) == [2]


@LAST
@pytest.mark.parametrize(("until", "renew"), [(until, renew) for until, how, renew in POLICIES if how == "raise"])
def test_a_holder_declared_with_another_policy_loses_no_change(stage: Stage, on_conflict: str, until: str, renew: bool) -> None:
    holding, key = stage.task(until, renew=renew), stage.key()
    holding.enqueue(key, 1)
    first = stage.run_of(key)

    job = holding.using(unique=Unique(TTL, "key", on_conflict=on_conflict)).enqueue(key, 2)
    assert job.duplicate == (until != "start")
    first.end()

    second = stage.run_of(key, 2)
    assert second.change == 2
    second.end()
    stage.wait_free(holding, key)


def test_an_expired_lock_that_another_owns_takes_the_call_along(stage: Stage) -> None:
    short, key = stage.app.tasks["short"], stage.key()
    rerun = short.using(unique=Unique(1, "key", on_conflict="rerun"))
    rerun.enqueue(key, 1)
    first = stage.run_of(key, 1)
    assert rerun.enqueue(key, 2).conflict == "rerun"
    stage.wait_free(short, key)
    owner = short.using(unique=Unique(TTL, "key", on_conflict="rerun")).enqueue(key, 3)
    second = stage.run_of(key, 2)
    assert (second.uid, second.change) == (owner.uid, 3)

    first.end()
    pending = stage.keys().pending
    wait_until(lambda: stage.client.hexists(pending, owner.raw_uid + b"+"))
    assert len(stage.of(key)) == 2, "it waits for the owner"
    second.end()

    third = stage.run_of(key, 3)
    assert third.change == 2
    third.end()
    stage.wait_free(short, key)


def test_arguments_that_were_handed_over_survive_the_death_of_the_worker(world: World) -> None:
    policy = ("done", "rerun", False)
    world.enqueue("x", policy)
    newer = world.enqueue("x", policy)
    first, other = world.join(), world.join()
    world.fetch(first)
    [uid] = first.jobs
    world.start(first, uid)
    assert payload(first.jobs[uid].raw) == newer.number

    world.kill(first, seen=True)
    world.fetch(other)
    world.start(other, uid)

    assert payload(other.jobs[uid].raw) == newer.number
    world.check()
    world.drain()


def test_no_change_is_lost_however_many_calls_arrive(stage: Stage) -> None:
    task, key = stage.task("done", "rerun"), stage.key()
    stage.let(key)

    for change in range(1, 301):
        task.enqueue(key, change)
    wait_until(lambda: changes(stage, key)[-1:] == [300])
    stage.wait_free(task, key)

    assert never_overlapped(stage, key)
    assert len(stage.of(key)) < 300
