"""The table of behaviours, row by row: each test is named after its row, and does what a user would."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis as redis_py

from fastq import BrokerError, DuplicateJobError, FastQ, JobIDConflictError, PayloadError, Unique
from fastq.keys import queue_keys
from tests.support.process import Child, script, wait_until
from tests.support.proxy import Proxy
from tests.support.queues import ids, locks, waiting
from tests.support.servers import Server
from tests.unique.stage import TTL, Stage, serving

KEY_FORMS: list[Any] = [None, "key", ("key", "change"), Unique.TASK, lambda key, change=0: key]


def refused(task: Any, *args: Any) -> DuplicateJobError:
    """The error of a call that is refused."""
    with pytest.raises(DuplicateJobError) as caught:
        task.enqueue(*args)
    return caught.value


def test_01_lock_free_lock_and_job_appear_together_or_not_at_all(idle_stage: Any, redis: redis_py.Redis, namespace: str) -> None:
    stage = idle_stage()
    job = stage.task().enqueue("k")

    [message] = waiting(redis, namespace)
    assert locks(redis, namespace) == {message.lock_key: job.raw_uid}
    assert message.uid == job.raw_uid

    with pytest.raises(PayloadError):
        stage.task().enqueue("other", object())
    assert len(waiting(redis, namespace)) == len(locks(redis, namespace)) == 1


def test_02_lock_held_the_holder_is_told_and_nothing_written_but_the_counter(
    idle_stage: Any, redis: redis_py.Redis, namespace: str
) -> None:
    stage = idle_stage()
    holder = stage.task().enqueue("k")
    before = everything(redis, namespace)

    error = refused(stage.task(), "k", 2)

    assert (error.job_uid, error.queue) == (holder.uid, "default")
    assert TTL - 30 < error.expires_in <= TTL
    changed = {key for key, value in everything(redis, namespace).items() if before.get(key) != value}
    assert {key.partition(b"}:")[2].partition(b":")[0] for key in changed} == {b"stats", b"lane"}
    assert stage.stats()["refused:done.raise.fixed"] == 1
    assert stage.app.locks.counts(stage.task()).refused == 1


def test_03_n_producers_enqueue_the_same_call_at_once_exactly_one_wins(idle_stage: Any) -> None:
    stages = [idle_stage() for _ in range(8)]
    go, outcomes = threading.Barrier(8), []

    def enqueue(task: Any) -> None:
        go.wait()
        try:
            outcomes.append(("in", task.enqueue("k").uid))
        except DuplicateJobError as error:
            outcomes.append(("refused", error.job_uid))

    threads = [threading.Thread(target=enqueue, args=(stage.task(),)) for stage in stages]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    [winner] = [uid for how, uid in outcomes if how == "in"]
    assert outcomes.count(("refused", winner)) == 7


@pytest.mark.parametrize("key", KEY_FORMS, ids=["content", "name", "names", "task", "function"])
def test_04_same_task_and_key_other_queue_both_are_enqueued(
    idle_stage: Any, redis: redis_py.Redis, namespace: str, key: Any
) -> None:
    task = idle_stage().define(f"t{id(key)}", Unique(TTL, key))

    first = task.enqueue("k")
    second = task.using(queue="other").enqueue("k")

    assert refused(task, "k").job_uid == first.uid
    assert refused(task.using(queue="other"), "k").job_uid == second.uid
    assert len(waiting(redis, namespace)) == len(waiting(redis, namespace, "other")) == 1


def test_04_a_named_key_in_another_queue_warns_once(idle_stage: Any, caplog: pytest.LogCaptureFixture) -> None:
    task = idle_stage().define("warned", Unique(TTL, "key"))

    with caplog.at_level("WARNING", "fastq"):
        task.using(queue="other")
        task.using(queue="third")

    told = [record.getMessage() for record in caplog.records if "in one queue" in record.getMessage()]
    assert [message.partition(":")[0] for message in told] == ["task 'warned'"]


def test_05_other_key_or_other_arguments_both_are_enqueued(idle_stage: Any, redis: redis_py.Redis, namespace: str) -> None:
    stage = idle_stage()
    by_content = stage.define("content", Unique(TTL))

    stage.task().enqueue("k")
    stage.task().enqueue("l")
    by_content.enqueue("k", 1)
    by_content.enqueue("k", 2)

    assert len(waiting(redis, namespace)) == len(locks(redis, namespace)) == 4


@pytest.mark.parametrize("how", ["delay", "at"])
def test_06_with_delay_or_at_the_ttl_counts_from_the_due_time(idle_stage: Any, how: str) -> None:
    stage = idle_stage()
    when: dict[str, Any] = {"delay": 3600} if how == "delay" else {"at": datetime.now(UTC) + timedelta(hours=1)}

    stage.task().using(**when).enqueue("k")

    assert 3600 + TTL - 30 < refused(stage.task(), "k").expires_in <= 3600 + TTL
    lock = stage.lock(stage.task(), "k")
    assert lock is not None
    assert lock.state == "scheduled"


@pytest.mark.parametrize("until", ["done", "success"])
def test_07_success_before_the_ttl_ends_the_lock_is_gone_at_once_and_the_next_enqueue_works(stage: Stage, until: str) -> None:
    task, key = stage.task(until), stage.key()
    task.enqueue(key)

    stage.run_of(key).end()
    stage.wait_free(task, key)

    task.enqueue(key)
    stage.run_of(key, 2).end()


@pytest.mark.parametrize("renew", [False, True], ids=["fixed", "renew"])
def test_08_an_attempt_fails_and_will_be_retried_the_lock_stays(stage: Stage, renew: bool) -> None:
    task, key = stage.app.tasks["long.retry.renew" if renew else "long.retry"], stage.key()
    job = task.enqueue(key)
    before = stage.lock(task, key)

    stage.run_of(key).fail()
    lock = stage.wait_state(task, key, "retrying")

    assert refused(task, key).job_uid == lock.job_uid == job.uid
    assert before is not None
    if renew:
        assert lock.expires_in > 3600 + TTL, "it is extended past the retry"
    else:
        assert lock.expires_in <= before.expires_in, "its TTL runs on"
    assert job.cancel()


@pytest.mark.parametrize(("until", "kept"), [("done", False), ("success", True)])
def test_09_the_job_dies_the_lock_goes_or_stays_to_the_end_of_its_ttl(stage: Stage, until: str, kept: bool) -> None:
    task, key = stage.task(until), stage.key()
    job = task.enqueue(key)
    stage.run_of(key, 1).fail()
    stage.run_of(key, 2).fail()
    stage.wait_dead(job)

    lock = stage.lock(task, key)

    assert (lock is not None) == kept
    if lock is not None:
        assert (lock.state, lock.job_uid) == ("dead", job.uid)
        assert TTL - 30 < lock.expires_in <= TTL


WORKER = """
from tests.unique.stage import Stage, serving
import redis, time
url, namespace = sys.argv[1:]
stage = Stage(url, namespace, redis.Redis.from_url(url))
with serving(stage.app):
    print("serves")
    while True:
        for run in stage.runs:
            print("runs", run.key, flush=True)
        time.sleep(0.02)
"""


def worker_process(stage: Stage) -> Child:
    """A worker in a process of its own, that serves already; its jobs never end."""
    child = script(WORKER, stage.app.config.url or "", stage.namespace)
    child.wait_line("serves", 30)
    return child


@pytest.mark.parametrize("renew", [False, True], ids=["fixed", "renew"])
def test_10_worker_killed_while_running_another_takes_the_job_over_with_its_lock(idle_stage: Any, renew: bool) -> None:
    stage = idle_stage()
    task = stage.task(renew=renew)
    job = task.enqueue("k")
    with worker_process(stage) as child:
        child.wait_line("runs k")
        child.kill()
        assert refused(task, "k").job_uid == job.uid

        with serving(stage.app):
            run = stage.run_of("k", timeout=20)
            assert (run.uid, run.attempt) == (job.uid, 1)
            assert refused(task, "k").job_uid == job.uid
            run.end()
            stage.wait_free(task, "k")


def test_11_every_worker_dead_the_lock_expires_by_itself(idle_stage: Any) -> None:
    stage = idle_stage()
    task = stage.app.tasks["short"]
    task.enqueue("k")

    stage.wait_free(task, "k")

    task.enqueue("k")


def test_12_and_13_a_ttl_that_ends_lets_a_duplicate_in_whose_lock_the_first_job_leaves_alone(stage: Stage) -> None:
    task, key = stage.app.tasks["short"], stage.key()
    lost = stage.app.locks.counts(task).lost
    task.enqueue(key)
    first = stage.run_of(key, 1)
    stage.wait_free(task, key)
    successor = task.using(unique=Unique(TTL, "key")).enqueue(key)
    second = stage.run_of(key, 2)

    first.end()
    wait_until(lambda: stage.app.locks.counts(task).lost == lost + 1)

    lock = stage.lock(task, key)
    assert lock is not None
    assert lock.job_uid == second.uid == successor.uid
    second.end()
    stage.wait_free(task, key)


PRODUCER = """
from fastq import FastQ, Unique
url, namespace = sys.argv[1:]
task = FastQ(url, namespace=namespace).task(name="made", unique=Unique(600, "key"))(lambda key: None)
for number in range(10**9):
    task.enqueue(f"k{number}")
    if not number:
        print("enqueues", flush=True)
"""


def test_14_producer_crashes_after_enqueue_lock_and_job_stand(url: str, namespace: str, redis: redis_py.Redis) -> None:
    with script(PRODUCER, url, namespace) as child:
        child.wait_line("enqueues")
        child.kill()

    wait_until(lambda: len(waiting(redis, namespace)) > 0)
    assert locks(redis, namespace) == {message.lock_key: message.uid for message in waiting(redis, namespace)}


@pytest.mark.parametrize("on_conflict", ["raise", "skip", "replace", "rerun"])
def test_15_reply_lost_on_the_way_the_call_is_repeated_and_enqueued_once(
    server: Server, idle_stage: Any, redis: redis_py.Redis, namespace: str, on_conflict: str
) -> None:
    with Proxy(server) as proxy:
        task = idle_stage(url=proxy.url).task(on_conflict=on_conflict)
        task.enqueue("first")  # connects
        fault = proxy.on_request(b"EVALSHA", "lose_reply")

        job = task.enqueue("k")

        assert fault.done.is_set()
        assert not job.duplicate
        assert [message.uid for message in waiting(redis, namespace)][1:] == [job.raw_uid]
        assert not redis.exists(queue_keys(namespace, "default").pending)


def test_15_broker_error_gives_the_handle_and_repeats_safely(start_server: Callable[..., Server], namespace: str) -> None:
    server = start_server()
    with FastQ(server.url, namespace=namespace) as app:
        task = app.task(name="t", unique=Unique(TTL, "key", on_conflict="rerun"))(lambda key: None)
        task.enqueue("first")
        app.broker._sync._patience = 0.2
        server.kill()
        with pytest.raises(BrokerError) as caught:
            task.enqueue("k")
        server.restart()

        first, again = caught.value.retry(), caught.value.retry()

        assert caught.value.job is not None
        assert first.uid == again.uid == caught.value.job.uid
        assert not again.duplicate
        client = server.client()
        assert [message.uid for message in waiting(client, namespace)] == [first.raw_uid]
        assert not client.exists(queue_keys(namespace, "default").pending), "it is not left to itself to rerun"


def test_16_explicit_job_id_in_use_is_a_conflict_until_the_job_ended_and_its_retention_passed(stage: Stage) -> None:
    task, key = stage.app.tasks["plain"], stage.key()
    job = task.using(job_id=key, retention=1).enqueue(key)

    with pytest.raises(JobIDConflictError) as caught:
        stage.app.tasks["plain2"].using(job_id=key).enqueue(key)
    assert caught.value.job_uid == job.uid
    stage.run_of(key).end()
    wait_until(lambda: job.status() == "succeeded")
    with pytest.raises(JobIDConflictError):
        task.using(job_id=key).enqueue(key)
    wait_until(lambda: not stage.client.exists(stage.keys().id(key)))

    task.using(job_id=key).enqueue(key).cancel()
    stage.let(key)


@pytest.mark.parametrize("freed_by", ["replayed", "deleted"])
def test_16_a_dead_job_keeps_its_id_until_it_is_replayed_or_deleted(stage: Stage, freed_by: str) -> None:
    task, key = stage.app.tasks["plain"], stage.key()
    job = task.using(job_id=key, retries=0).enqueue(key)
    stage.run_of(key).fail()
    stage.wait_dead(job)
    dead = stage.app.queue().dead

    with pytest.raises(JobIDConflictError):
        task.using(job_id=key).enqueue(key)
    assert stage.client.pttl(stage.keys().id(key)) == -1
    if freed_by == "replayed":
        dead.replay(job.uid)
        stage.run_of(key, 2).end()
        wait_until(lambda: not stage.client.exists(stage.keys().id(key)))
    else:
        dead.delete(job.uid)

    stage.let(key)
    task.using(job_id=key).enqueue(key)


def test_17_job_id_and_unique_together_both_apply_on_separate_keys(
    idle_stage: Any, redis: redis_py.Redis, namespace: str
) -> None:
    task = idle_stage().task()
    task.using(job_id="i").enqueue("k")

    with pytest.raises(DuplicateJobError):
        task.using(job_id="j").enqueue("k")
    with pytest.raises(JobIDConflictError):
        task.using(job_id="i").enqueue("l")

    assert (len(locks(redis, namespace)), set(ids(redis, namespace))) == (1, {b"i"})


def test_18_bulk_enqueue_each_item_has_its_own_outcome_and_duplicates_inside_the_batch_are_caught(idle_stage: Any) -> None:
    stage = idle_stage()
    holder = stage.task().enqueue("b")

    result = stage.task().enqueue_many([("a",), ("b",), ("a",), {"key": "c"}])

    assert (result.enqueued, result.duplicate_count) == (2, 2)
    assert [(item.index, item.job_uid) for item in result.duplicates] == [(1, holder.uid), (2, result[0].uid)]
    mixed = [stage.task(until).prepare("m") for until in ("success", "start", "ttl")]
    mixed.append(stage.task().using(queue="other").prepare("b"))
    assert stage.app.enqueue_many([*mixed, *mixed]).duplicate_count == 4
    for on_conflict, outcome in (("skip", "skipped"), ("replace", "replaced"), ("rerun", "rerun")):
        result = stage.task(on_conflict=on_conflict).enqueue_many([("a", 1), ("a", 2)])
        assert [(item.index, item.outcome) for item in result.duplicates] == [(1, outcome)]
        assert (result[1].uid, result[1].duplicate, result[1].conflict) == (result[0].uid, True, outcome)


@pytest.mark.parametrize("how", ["cancel", "purge"])
@pytest.mark.parametrize("delay", [0, 60])
def test_19_cancel_or_purge_of_a_job_its_lock_and_id_are_released(
    idle_stage: Any, redis: redis_py.Redis, namespace: str, how: str, delay: int
) -> None:
    stage = idle_stage()
    job = stage.task().using(job_id="i", delay=delay).enqueue("k")

    if how == "purge":
        assert stage.app.queue().purge() == 1
    else:
        assert job.cancel() == (delay > 0)
        if not delay:
            with serving(stage.app):
                stage.wait_settled()

    assert (locks(redis, namespace), ids(redis, namespace), stage.runs) == ({}, {}, [])
    stage.task().using(job_id="i").enqueue("k")


def test_20_replay_of_a_dead_unique_job_takes_the_lock_again_and_a_conflict_is_reported_not_forced(stage: Stage) -> None:
    task, key = stage.task(), stage.key()
    job = task.using(retries=0).enqueue(key)
    stage.run_of(key, 1).fail()
    stage.wait_dead(job)
    dead = stage.app.queue().dead
    other = task.enqueue(key)

    result = dead.replay(job.uid)
    assert (result.replayed, [refusal.reason for refusal in result.refused]) == (0, ["lock held"])
    assert refused(task, key).job_uid == other.uid
    stage.run_of(key, 2).end()
    stage.wait_free(task, key)

    assert dead.replay(job.uid).replayed == 1
    assert refused(task, key).job_uid == job.uid
    stage.run_of(key, 3).end()
    stage.wait_free(task, key)


def test_21_redis_restarts_with_its_data_locks_keep_their_remaining_ttl(own_server: Server, namespace: str) -> None:
    with FastQ(own_server.url, namespace=namespace) as app:
        task = app.task(name="t", unique=Unique(TTL, "key"))(lambda key: None)
        job = task.enqueue("k")
        began = time.monotonic()

        own_server.restart()

        lock = app.locks.get(task, "k")
        assert lock is not None
        assert lock.job_uid == job.uid
        assert TTL - 1 - (time.monotonic() - began) < lock.expires_in <= TTL


@pytest.mark.parametrize("why", ["encoding", "out of memory", "connection"])
def test_22_enqueue_fails_no_lock_is_left_behind(start_server: Callable[..., Server], namespace: str, why: str) -> None:
    server = start_server()
    client = server.client()
    with Proxy(server) as proxy, FastQ(proxy.url, namespace=namespace) as app:
        task = app.task(name="t", unique=Unique(TTL, "key"))(lambda key, body=None: None)
        task.enqueue("first")
        if why == "encoding":
            with pytest.raises(PayloadError):
                task.enqueue("k", object())
        elif why == "out of memory":
            client.config_set("maxmemory", 1)
            with pytest.raises(BrokerError, match="out of memory"):
                task.enqueue("k")
            with pytest.raises(BrokerError, match="out of memory"):
                task.using(delay=60).enqueue("k")
            client.config_set("maxmemory", 0)
        else:
            app.broker._sync._patience = 0.2
            proxy.refuse()
            proxy.cut()
            with pytest.raises(BrokerError):
                task.enqueue("k")

        assert len(locks(client, namespace)) == len(waiting(client, namespace)) == 1


def everything(client: redis_py.Redis, namespace: str) -> dict[bytes, bytes | None]:
    """Every key with what it holds."""
    return {key: client.dump(key) for key in client.scan_iter(match=f"{namespace}:*", count=1000)}
