"""Bounds: queues that are full, jobs that are too late, calls that do not fit."""

import asyncio
import time

import pytest

from fastq import Backoff, BulkError, FastQ, PayloadError, QueueFull, Unique
from fastq.keys import queue_keys
from tests.support.bursts import burst
from tests.support.queues import ids, locks, waiting

# --- max_queue


@pytest.fixture
def app(new_app) -> FastQ:
    return new_app(max_queue=10)


@pytest.fixture
def small(app) -> FastQ:
    app.task(name="t")(lambda n: None)
    app.task(name="u", unique=Unique(ttl=60))(lambda n: None)
    return app


def test_a_full_queue_refuses_a_job_and_writes_nothing(small, call, redis, namespace):
    small.tasks["t"].enqueue_many((n,) for n in range(8))
    small.tasks["t"].using(delay=60).enqueue_many((n,) for n in range(2))
    before = redis.hgetall(queue_keys(namespace, "default").stats)

    with pytest.raises(QueueFull, match="max_queue is 10") as full:
        call(small.tasks["u"].using(job_id="i"), "enqueue", 1)

    assert (full.value.queue, full.value.waiting) == ("default", 10)
    assert (locks(redis, namespace), ids(redis, namespace)) == ({}, {})
    assert redis.hgetall(queue_keys(namespace, "default").stats) == before


def test_a_queue_takes_jobs_again_when_some_have_run(small):
    small.tasks["t"].enqueue_many((n,) for n in range(10))
    with pytest.raises(QueueFull):
        small.tasks["t"].enqueue(1)
    small.tasks["t"].using(queue="other").enqueue(1)

    burst(small)

    assert small.tasks["t"].enqueue(1).uid


@pytest.mark.parametrize("name", ["t", "u"])
def test_a_bulk_that_meets_a_full_queue_ends_with_what_is_in(small, call, redis, namespace, name):
    small.tasks["t"].enqueue_many((n,) for n in range(4))

    with pytest.raises(BulkError) as ended:
        call(small.tasks[name], "enqueue_many", ((n,) for n in range(100, 125)))

    error = ended.value
    assert isinstance(error.__cause__, QueueFull)
    assert error.index == error.result.enqueued == len(error.result) == len(waiting(redis, namespace)) - 4
    assert not error.uncertain
    assert len(locks(redis, namespace)) == (error.result.enqueued if name == "u" else 0)


def test_a_bulk_larger_than_the_bound_gets_in_as_far_as_there_is_room(small, call, redis, namespace):
    with pytest.raises(BulkError) as ended:
        call(small.tasks["t"], "enqueue_many", ((n,) for n in range(25)))
    assert (ended.value.index, len(waiting(redis, namespace))) == (10, 10)

    prepared = [small.tasks["t"].using(queue="q").prepare(n) for n in range(25)]
    with pytest.raises(BulkError) as ended:
        call(small, "enqueue_many", prepared)
    assert (ended.value.index, len(waiting(redis, namespace, "q"))) == (10, 10)


def test_concurrent_callers_that_share_a_call_are_all_told(small, redis, namespace):
    async def enqueue() -> list[object]:
        await small.tasks["t"].using(queue="other").aenqueue(0)  # connects, so that the others go together
        jobs = [small.tasks["t"].aenqueue(n) for n in range(11)]
        outcomes = await asyncio.gather(*jobs, return_exceptions=True)
        await small.aclose()
        return outcomes

    outcomes = asyncio.run(enqueue())

    assert {type(outcome) for outcome in outcomes} == {QueueFull}
    assert waiting(redis, namespace) == []


def test_retries_and_replays_are_never_refused(new_app):
    app = new_app(max_queue=2)

    @app.task(name="t", retries=0)
    async def t(n: int) -> None:
        raise OSError

    t.enqueue_many((n,) for n in range(2))
    burst(app)
    t.enqueue_many((n,) for n in range(2))

    assert app.queue().dead.replay_all().replayed == 2
    assert app.queue().counts().waiting == 4


# --- expires


def test_a_job_that_was_not_started_in_time_ends_as_expired_and_lets_go_of_lock_and_id(app, redis, namespace):
    ran = []
    task = app.task(name="t", expires=0.05, unique=Unique(ttl=60, until="ttl"))(lambda n: ran.append(n))
    late = task.using(job_id="i").enqueue(1)
    time.sleep(0.06)
    punctual = task.using(expires=60).enqueue(2)

    burst(app)

    assert (ran, late.status()) == ([2], "expired")
    assert list(locks(redis, namespace).values()) == [punctual.raw_uid], "kept for its window, which the other's is not"
    assert ids(redis, namespace) == {}
    totals = app.queue().counts().totals
    assert (totals["expired"], totals["expired:t"]) == (1, 1)


def test_an_expiry_counts_from_the_due_time(app):
    ran = []
    app.task(name="t", expires=0.5)(lambda: ran.append(1)).using(delay=0.6).enqueue()
    time.sleep(0.6)

    burst(app)

    assert ran == [1]


def test_a_retry_is_not_too_late_once_the_job_was_started_in_time(app):
    ran = []

    @app.task(name="t", expires=0.3, retries=3)
    def t() -> None:
        ran.append(1)
        if len(ran) == 1:
            time.sleep(0.35)
            raise OSError

    t.using(retries=Backoff(retries=1, delay=0)).enqueue()
    burst(app)

    assert ran == [1, 1]


# --- arguments


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([(1,), (1, 2, 3)], "too many positional"),
        ([(1,), ()], "missing"),
        ([(1,), {"n": 1, "q": 2}], "unexpected keyword argument 'q'"),
        ([(1,), {"m": 2}], "missing"),
        ([{"n": 1, "m": 2}, {}], "missing"),
    ],
    ids=["too many", "too few", "an unknown keyword", "a missing keyword", "nothing"],
)
@pytest.mark.parametrize("unique", [None, Unique(ttl=60, key="n")], ids=["plain", "unique"])
def test_bulk_items_that_do_not_fit_the_task_are_refused_as_single_calls_are(app, call, unique, items, message):
    task = app.task(name="t", unique=unique)(lambda n, m=0: None)

    with pytest.raises(BulkError) as ended:
        call(task, "enqueue_many", items)

    assert isinstance(ended.value.__cause__, PayloadError)
    assert message in str(ended.value)
    assert (ended.value.index, ended.value.result.enqueued) == (1, 1)


def test_bulk_items_that_fit_in_any_way_are_taken(app, redis, namespace):
    @app.task(name="t")
    def t(a, /, b, *rest, c, d=4, **extra) -> None: ...

    @app.task(name="k")
    def k(*, a, b=2) -> None: ...

    with pytest.raises(BulkError, match="missing"):
        t.enqueue_many([(1, 2)])
    with pytest.raises(BulkError, match="missing"):
        t.enqueue_many([{"a": 1, "b": 2, "c": 3}])
    assert k.enqueue_many([{"a": 1}, {"a": 1, "b": 3}]).enqueued == 2
    with pytest.raises(BulkError):
        k.enqueue_many([(1,)])
    assert app.task(name="s")(lambda *rest: None).enqueue_many([(), (1, 2, 3)]).enqueued == 2
    assert app.task(name="e")(lambda **extra: None).enqueue_many([{}, {"x": 1}]).enqueued == 2
