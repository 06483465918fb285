"""Unique jobs at enqueue: the rows of the table of behaviours that need no worker. No lock expires meanwhile."""

import threading

import pytest

from fastq import DuplicateJobError, JobIDConflictError, PayloadError, Unique, UniqueConfigError
from tests.support.queues import arguments, ids, locks, scheduled, waiting

DAY = 86_400


@pytest.fixture
def send(app):
    @app.task(name="send", unique=Unique(ttl=DAY))
    def send(order_id: str, template: str = "receipt"): ...

    return send


def uid_of(job):
    return job.raw_uid


def test_lock_free_lock_and_job_appear_together(send, call, redis, namespace):
    job = call(send, "enqueue", "o-1")

    [message] = waiting(redis, namespace)
    assert locks(redis, namespace) == {message.lock_key: message.uid}
    assert (message.uid, message.lock_ttl_ms, message.policy) == (uid_of(job), DAY * 1000, 0)


def test_lock_held_the_second_call_learns_the_holder_and_the_seconds_left_and_writes_nothing(
    send, call, redis, namespace
):
    holder = call(send, "enqueue", "o-1")

    with pytest.raises(DuplicateJobError, match=f"waiting in queue 'default' already, as job {holder.uid}") as caught:
        call(send, "enqueue", template="receipt", order_id="o-1")

    assert (caught.value.job_uid, caught.value.queue) == (holder.uid, "default")
    assert DAY - 60 < caught.value.expires_in <= DAY
    assert [message.uid for message in waiting(redis, namespace)] == [uid_of(holder)]
    assert list(locks(redis, namespace).values()) == [uid_of(holder)]


def test_of_n_producers_at_once_exactly_one_wins(new_app, redis, namespace):
    go = threading.Barrier(16)
    outcomes = []

    def enqueue(app):
        @app.task(name="send", unique=Unique(ttl=DAY))
        def send(order_id): ...

        go.wait()
        for order in range(30):
            try:
                outcomes.append((order, send.enqueue(order).uid, True))
            except DuplicateJobError as duplicate:
                outcomes.append((order, duplicate.job_uid, False))

    apps = [new_app() for _ in range(16)]
    threads = [threading.Thread(target=enqueue, args=(app,)) for app in apps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for order in range(30):
        won = [uid for found, uid, first in outcomes if found == order and first]
        told = {uid for found, uid, _ in outcomes if found == order}
        assert len(won) == 1
        assert told == set(won)
    assert len(waiting(redis, namespace)) == 30


@pytest.mark.parametrize("key", [None, "order_id", Unique.TASK, lambda order_id, template: order_id])
def test_in_another_queue_the_same_call_is_enqueued_too_whatever_the_form_of_the_key(app, call, redis, namespace, key):
    send = app.task(name="send", unique=Unique(DAY, key=key))(lambda order_id, template="receipt": None)

    call(send, "enqueue", "o-1")
    call(send.using(queue="other"), "enqueue", "o-1")
    with pytest.raises(DuplicateJobError):
        call(send.using(queue="other"), "enqueue", "o-1")

    assert len(waiting(redis, namespace)) == len(waiting(redis, namespace, "other")) == 1


def test_other_arguments_or_another_key_are_enqueued(send, call, redis, namespace):
    call(send, "enqueue", "o-1")
    call(send, "enqueue", "o-2")
    call(send, "enqueue", "o-1", "invoice")

    assert len(waiting(redis, namespace)) == len(locks(redis, namespace)) == 3


def test_with_a_delay_the_ttl_counts_from_the_due_time(send, call, redis, namespace):
    job = call(send.using(delay=DAY), "enqueue", "o-1")

    [(_, message)] = scheduled(redis, namespace)
    [ttl] = [redis.pttl(key) for key in redis.scan_iter(match=f"{namespace}:*unique*")]
    assert 2 * DAY * 1000 - 60_000 < ttl <= 2 * DAY * 1000
    assert message.lock_ttl_ms == DAY * 1000
    with pytest.raises(DuplicateJobError, match="is scheduled in queue") as caught:
        call(send, "enqueue", "o-1")
    assert caught.value.job_uid == job.uid


def test_a_lock_with_renew_outlasts_any_wait(app, call, redis, namespace):
    send = app.task(name="send", unique=Unique(60, renew=True))(lambda order_id: None)

    call(send, "enqueue", "o-1")

    [ttl] = [redis.pttl(key) for key in redis.scan_iter(match=f"{namespace}:*unique*")]
    assert DAY * 1000 - 60_000 < ttl <= DAY * 1000
    assert waiting(redis, namespace)[0].lock_ttl_ms == 60_000


def test_unique_can_be_given_changed_and_switched_off_by_call(app, send, call, redis, namespace):
    plain = app.task(name="plain")(lambda n: None)

    call(send.using(unique=None), "enqueue", "o-1")
    call(send.using(unique=None), "enqueue", "o-1")
    call(plain.using(unique=Unique(DAY)), "enqueue", 1)
    with pytest.raises(DuplicateJobError):
        call(plain.using(unique=Unique(DAY)), "enqueue", 1)
    call(plain, "enqueue", 1)

    assert [message.task for message in waiting(redis, namespace)] == ["send", "send", "plain", "plain"]


def test_an_enqueue_that_cannot_be_encoded_leaves_no_lock_behind(app, call, redis, namespace):
    @app.task(name="send", unique=Unique(DAY, key="order_id"))
    def send(order_id, body): ...

    for body in (object(), "x" * (1 << 20)):
        with pytest.raises(PayloadError):
            call(send, "enqueue", "o-1", body)

    assert not locks(redis, namespace)
    call(send, "enqueue", "o-1", "fits")


# --- job_id


def test_an_explicit_job_id_in_use_is_a_conflict_that_tells_the_holder(app, call, redis, namespace):
    task = app.task(name="t")(lambda n: None)
    job = call(task.using(job_id="event:77"), "enqueue", 1)

    with pytest.raises(JobIDConflictError, match="'event:77' is in use") as caught:
        call(task.using(job_id="event:77"), "enqueue", 2)

    assert (caught.value.job_uid, caught.value.queue) == (job.uid, "default")
    assert job.job_id == waiting(redis, namespace)[0].job_id == "event:77"
    assert ids(redis, namespace) == {b"event:77": uid_of(job)}


def test_ids_are_shared_by_the_tasks_of_a_queue_and_by_no_two_queues(app, call, redis, namespace):
    one, two = app.task(name="one")(lambda: None), app.task(name="two")(lambda: None)

    call(one.using(job_id="x"), "enqueue")
    with pytest.raises(JobIDConflictError):
        call(two.using(job_id="x"), "enqueue")
    call(two.using(job_id="x", queue="other"), "enqueue")

    assert len(waiting(redis, namespace)) == len(waiting(redis, namespace, "other")) == 1


def test_a_conflict_of_ids_leaves_no_lock_behind(send, call, redis, namespace):
    call(send.using(job_id="x"), "enqueue", "o-1")

    with pytest.raises(JobIDConflictError):
        call(send.using(job_id="x"), "enqueue", "o-2")

    assert len(locks(redis, namespace)) == 1
    call(send, "enqueue", "o-2")


def test_a_job_id_and_a_lock_both_apply(send, call, redis, namespace):
    call(send.using(job_id="x"), "enqueue", "o-1")

    with pytest.raises(DuplicateJobError):
        call(send.using(job_id="y"), "enqueue", "o-1")

    assert set(ids(redis, namespace)) == {b"x"}


# --- app.locks


def test_a_lock_can_be_looked_at_and_released_by_hand(app, send, call, redis, namespace):
    job = call(send, "enqueue", "o-1")

    lock = call(app.locks, "get", send, order_id="o-1")
    assert (lock.job_uid, lock.state) == (job.uid, "waiting")
    assert f"{lock.task}:{lock.key}".encode() == waiting(redis, namespace)[0].lock_key
    assert 0 <= lock.age < 60
    assert DAY - 60 < lock.expires_in <= DAY
    assert call(app.locks, "get", "send", "o-1").job_uid == job.uid
    assert call(app.locks, "get", send, "o-2") is None
    assert call(app.locks, "get", send.using(queue="other"), "o-1") is None

    assert call(app.locks, "release", send, "o-1")
    assert not call(app.locks, "release", send, "o-1")
    assert not locks(redis, namespace)
    call(send, "enqueue", "o-1")


def test_a_task_that_is_not_unique_has_no_locks(app):
    task = app.task(name="t")(lambda: None)

    with pytest.raises(UniqueConfigError, match="not unique"):
        app.locks.get(task)


# --- by name


def test_by_name_a_registered_task_has_its_own_options(app, send, call, redis, namespace):
    call(app, "enqueue", "send", "o-1")

    with pytest.raises(DuplicateJobError):
        call(send, "enqueue", "o-1")
    with pytest.raises(DuplicateJobError):
        call(app, "enqueue", "send", order_id="o-1")
    call(app.using(queue="other", unique=None), "enqueue", "send", order_id="o-1")
    assert len(waiting(redis, namespace)) == len(waiting(redis, namespace, "other")) == 1


def test_by_name_an_unknown_task_goes_to_the_default_queue_without_a_lock(app, call, redis, namespace):
    call(app, "enqueue", "elsewhere", 1, b=2)
    call(app, "enqueue", "elsewhere", 1, b=2)

    assert [message.task for message in waiting(redis, namespace)] == ["elsewhere"] * 2
    assert arguments(waiting(redis, namespace)[0]) == [[1], {"b": 2}]
    assert not locks(redis, namespace)


def test_by_name_with_keywords_the_lock_is_the_one_that_the_function_has(app, new_app, send, call, redis, namespace):
    stranger = new_app()
    named = stranger.using(unique=Unique(DAY))
    named.enqueue("send", order_id="o-1")

    with pytest.raises(DuplicateJobError):
        call(send, "enqueue", "o-1")
    call(send, "enqueue", "o-2")
    with pytest.raises(DuplicateJobError):
        named.enqueue("send", order_id="o-2")


def test_by_name_what_was_unknown_is_found_once_it_is_registered(app, redis, namespace):
    app.enqueue("late")

    app.task(name="late", queue="mail")(lambda: None)
    app.enqueue("late")

    assert len(waiting(redis, namespace)) == len(waiting(redis, namespace, "mail")) == 1
