"""Cases C01 to C11 from the field: locks and keys that failed others. Each test says what must hold instead."""

import asyncio
import enum
import os
import random
import signal
import time
import uuid
from dataclasses import dataclass
from typing import Any

import pytest

from fastq import Backoff, DuplicateJobError, FastQ, Unique, UniqueConfigError
from fastq.keys import queue_keys
from tests.support.process import script, wait_until
from tests.support.queues import locks, scheduled, waiting
from tests.unique.stage import TTL, Stage, serving


def refused(task: Any, *args: Any, **kwargs: Any) -> str:
    """The holder that a refused call names."""
    with pytest.raises(DuplicateJobError) as caught:
        task.enqueue(*args, **kwargs)
    return caught.value.job_uid


# --- C01: the lock outlives its job


@pytest.mark.parametrize("until", ["done", "success"])
def test_c01_a_dead_job_s_lock_does_not_block_the_next_one(stage: Stage, until: str) -> None:
    task, key = stage.task(until).using(unique=Unique(3600, "key", until)), stage.key()
    job = task.enqueue(key)
    stage.run_of(key, 1).fail()
    stage.run_of(key, 2).fail()
    stage.wait_dead(job)

    lock = stage.lock(task, key)

    if until == "success":
        assert lock is not None, "asked to outlast the failure: to the end of its TTL, and no longer"
        assert 3540 < lock.expires_in <= 3600
        assert stage.app.queue().dead.delete(job.uid) == 1
    stage.let(key)
    assert not task.enqueue(key).duplicate
    stage.wait_free(task, key)


@pytest.mark.parametrize("how", ["deleted while delayed", "deleted while dead", "cancelled", "purged"])
@pytest.mark.parametrize("until", ["done", "success", "ttl"])
def test_c01_a_job_that_is_taken_out_leaves_no_lock(idle_stage: Any, how: str, until: str) -> None:
    stage = idle_stage()
    task = stage.task(until)
    if how == "deleted while delayed":
        assert task.using(delay=3600).enqueue("k").cancel()
    elif how == "purged":
        task.enqueue("k")
        assert stage.app.queue().purge() == 1
    else:
        job = task.using(retries=0).enqueue("k")
        if how == "cancelled":
            job.cancel()
        with serving(stage.app):
            if how == "deleted while dead":
                stage.run_of("k").fail()
                stage.wait_dead(job)
                assert stage.app.queue().dead.delete(job.uid) == 1
            stage.wait_settled()

    assert locks(stage.client, stage.namespace) == {}
    assert not task.enqueue("k").duplicate


# --- C02: a lock reaper deletes a live lock


def hold_for(stage: Stage, seconds: float) -> None:
    task, key = stage.app.tasks["brief.renew"], stage.key()
    job = task.enqueue(key)
    run = stage.run_of(key)
    while time.monotonic() < run.began + seconds:
        assert refused(task, key) == job.uid
        stage.app.queue().dead.delete_all()  # the one cleaning up that there is
        time.sleep(0.2)
    run.end()
    stage.wait_free(task, key)
    assert len(stage.of(key)) == 1


def test_c02_a_lock_is_renewed_for_as_long_as_its_job_runs(stage: Stage) -> None:
    hold_for(stage, 2)


@pytest.mark.cases
def test_c02_at_full_length(stage: Stage) -> None:
    hold_for(stage, 15)


# --- C03, C07: uniqueness and retries


def test_c03_while_a_retry_waits_duplicates_are_refused_and_the_retry_is_not(stage: Stage) -> None:
    task, key = stage.task().using(retries=Backoff(2, delay=0.3, factor=1, jitter=0)), stage.key()
    job = task.enqueue(key)
    for attempt in (1, 2):
        stage.run_of(key, attempt).fail()
        assert stage.wait_state(task, key, "retrying").job_uid == job.uid
        assert refused(task, key) == job.uid
    stage.run_of(key, 3).end()
    stage.wait_free(task, key)

    assert [(run.uid, run.attempt) for run in stage.of(key)] == [(job.uid, attempt) for attempt in (1, 2, 3)]
    assert not task.enqueue(key).duplicate
    stage.let(key)


def test_c07_a_retry_and_a_waiting_sibling_of_until_start_both_end(stage: Stage) -> None:
    task, key = stage.task("start").using(retries=1), stage.key()
    first = task.enqueue(key)
    run = stage.run_of(key, 1)
    sibling = task.using(delay=0.3).enqueue(key)
    assert refused(task, key) == sibling.uid

    run.fail()
    retry = stage.run_of(key, 2)
    assert (retry.uid, retry.attempt) == (first.uid, 2)
    assert refused(task, key) == sibling.uid, "the retry leaves the sibling's lock alone"
    second = stage.run_of(key, 3)
    assert (second.uid, stage.lock(task, key)) == (sibling.uid, None)

    stage.let(key)
    stage.wait_settled()


# --- C04: a delayed job refuses itself when due


@pytest.mark.parametrize("renew", [False, True], ids=["fixed", "renew"])
@pytest.mark.parametrize("by", ["enqueue", "bulk", "retry", "replay"])
def test_c04_a_job_never_meets_its_own_lock(stage: Stage, by: str, renew: bool) -> None:
    task, key = stage.task(renew=renew), stage.key()
    if by == "bulk":
        assert task.using(delay=0.3).enqueue_many([(key,), (key,)]).enqueued == 1
    else:
        task.using(delay=0.3, retries=1 if by == "retry" else 0).enqueue(key)
    lock = stage.lock(task, key)
    assert lock is not None
    assert refused(task, key) == refused(task.using(delay=9), key) == lock.job_uid

    runs = 1
    run = stage.run_of(key)
    if by in ("retry", "replay"):
        run.fail()
        if by == "replay":
            wait_until(lambda: stage.app.queue().dead.replay(lock.job_uid).replayed == 1)
        run, runs = stage.run_of(key, 2), 2
    run.end()
    stage.wait_free(task, key)

    assert [one.uid for one in stage.of(key)] == [lock.job_uid] * runs


# --- C05: a lock token on a shared object


def run_keys(idle_stage: Any, number: int) -> None:
    stage = idle_stage()
    app: FastQ = stage.app
    ended: dict[str, float] = {}

    async def work(key: str) -> None:
        await asyncio.sleep(random.uniform(0.005, 0.1))
        ended[key] = time.monotonic()

    task: Any = app.task(name="work", unique=Unique(TTL, "key"))(work)
    keys = [f"k{i}" for i in range(number)]
    holders = {key: job.uid for key, job in zip(keys, task.enqueue_many([(key,) for key in keys]), strict=True)}
    with serving(app, concurrency=50):
        for key in keys:
            lock = app.locks.get(task, key)
            if lock is not None:
                assert lock.job_uid == holders[key]
        wait_until(lambda: len(ended) == number)
        wait_until(lambda: not locks(stage.client, stage.namespace), 3)

    assert stage.stats()["locks_lost"] == 0


def test_c05_jobs_of_one_task_release_their_own_locks_and_no_other(idle_stage: Any) -> None:
    run_keys(idle_stage, 100)


@pytest.mark.cases
def test_c05_at_full_length(idle_stage: Any) -> None:
    run_keys(idle_stage, 500)


# --- C06: a lock points to a job that does not exist


def test_c06_a_producer_that_is_killed_leaves_no_lock_without_a_job(idle_stage: Any) -> None:
    stage = idle_stage()
    task = stage.task()
    seed = random.randrange(10**6)
    print("seed", seed)
    chance = random.Random(seed)
    for number in range(20):
        child = os.fork()
        if not child:
            try:
                for turn in range(10**6):
                    task.enqueue(f"{number}-{turn}")
            finally:
                os._exit(1)
        time.sleep(chance.uniform(0.005, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    held = locks(stage.client, stage.namespace)
    assert held == {message.lock_key: message.uid for message in waiting(stage.client, stage.namespace)}
    assert held


def test_c06_a_lock_whose_job_lost_its_body_is_found_out(stage: Stage) -> None:
    task, key = stage.task(), stage.key()
    lost = task.using(delay=3600).enqueue(key)
    stage.client.hdel(stage.keys().jobs, lost.raw_uid)

    job = task.enqueue(key)

    assert not job.duplicate
    stage.run_of(key).end()
    stage.wait_free(task, key)
    stage.client.zrem(stage.keys().scheduled, lost.raw_uid)


# --- C08: a concurrency slot is leaked


@pytest.mark.parametrize("how", ["cancelled", "timed out", "failed in finally"])
def test_c08_slots_and_keys_are_free_again_after(idle_stage: Any, how: str) -> None:
    stage = idle_stage()

    async def fail(key: str) -> None:
        try:
            await asyncio.sleep(0)
        finally:
            raise RuntimeError(key)

    app = stage.app
    failing: Any = app.task(name="fails", unique=Unique(TTL, "key"), retries=0)(fail)
    task = failing if how == "failed in finally" else stage.task().using(retries=0, timeout=0.2 if how == "timed out" else None)
    with serving(app, concurrency=2):
        jobs = [task.enqueue("a"), task.enqueue("b")]
        if how == "cancelled":
            stage.run_of("a")
            stage.run_of("b")
            for job in jobs:
                job.cancel()
        for key in ("a", "b"):
            stage.wait_free(task, key)
            stage.let(key)
        task.enqueue_many([("a",), ("b",)])

        for number in range(10):
            stage.let(f"short{number}")
            stage.task().enqueue(f"short{number}")
        wait_until(lambda: sum(len(stage.of(f"short{number}")) for number in range(10)) == 10)
        stage.wait_settled()
    assert locks(stage.client, stage.namespace) == {}


def test_c08_slots_and_keys_are_free_again_after_a_worker_was_killed(idle_stage: Any) -> None:
    from tests.unique.test_renew import worker_process

    stage = idle_stage()
    with worker_process(stage) as child:
        stage.task().enqueue("a")
        stage.task(renew=True).enqueue("b")
        child.wait_line("runs a")
        child.wait_line("runs b")
        child.kill()

    keys = ["a", "b", *(f"short{number}" for number in range(10))]
    for key in keys:
        stage.let(key)
    for key in keys[2:]:
        stage.task().enqueue(key)
    with serving(stage.app, concurrency=2):
        wait_until(lambda: all(stage.of(key) for key in keys), 20)
        stage.wait_settled()
    assert locks(stage.client, stage.namespace) == {}


# --- C09, C10, C11: keys


@dataclass
class Point:
    x: int
    y: dict[str, int]


class Colour(enum.Enum):
    RED = "red"


EQUAL = """
import random, uuid
from typing import Any
from fastq import DuplicateJobError, FastQ, Unique
from tests.unique.test_cases import Colour, Point

def shuffled(mapping):
    items = [(key, shuffled(value) if isinstance(value, dict) else value) for key, value in mapping.items()]
    random.shuffle(items)
    return dict(items)

words = ["alpha", "beta", "gamma", "delta"]
random.shuffle(words)
app = FastQ(sys.argv[1], namespace=sys.argv[2])
for number, (kind, value) in enumerate([
    (dict, shuffled({"a": 1, "b": {"c": [1, 2], "d": {"e": None, "f": True}}})),
    (set[str], set(words)), (frozenset[str], frozenset(words)), (tuple[int, ...], random.choice([(1, 2), [1, 2]])),
    (dict, shuffled({1: "a", "1": "b"})), (dict, shuffled({None: 1, True: 2, "x": 3})),
    (Point, Point(1, shuffled({"p": 1, "q": 2}))), (Colour, Colour.RED), (uuid.UUID, uuid.UUID(int=7)), (bytes, b"x"),
]):
    def body(value): ...
    body.__annotations__["value"] = kind
    try:
        app.task(name=f"t{number}", unique=Unique(600))(body).enqueue(value)
    except DuplicateJobError:
        pass
print("done")
"""


def test_c09_equal_values_are_one_job_from_processes_of_every_hash_seed(url: str, namespace: str, redis: Any) -> None:
    children = [script(EQUAL, url, namespace, env={"PYTHONHASHSEED": str(seed)}) for seed in range(5)]
    for child in children:
        child.wait_line("done")
        child.close()

    assert sorted(message.task for message in waiting(redis, namespace)) == [f"t{number}" for number in range(10)]


def test_c09_equal_values_of_every_kind_have_one_key(app_of_kinds: Any) -> None:
    key = app_of_kinds
    one, other = uuid.UUID(int=7), uuid.UUID(int=7)
    for first, second in [
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}),
        ({"x", "y", "z"}, frozenset(["z", "y", "x"])),
        ((1, [2, 3]), [1, (2, 3)]),
        ({1: "a", "1": "b"}, {"1": "b", 1: "a"}),
        ({None: 1, True: 2, "x": 3}, {"x": 3, True: 2, None: 1}),
        (Point(1, {"p": 1, "q": 2}), Point(1, {"q": 2, "p": 1})),
        (Colour.RED, "red"),
        (one, other),
        (b"x", bytearray(b"x")),
    ]:
        assert key(first) == key(second), (first, second)
    for first, second in [({1: "a"}, {"1": "a"}), (1, True), (1, "1"), (b"x", "x"), ([], {}), (None, "")]:
        assert key(first) != key(second), (first, second)


@pytest.fixture
def app_of_kinds() -> Any:
    task: Any = FastQ("redis://127.0.0.1:1/0").task(name="t", unique=Unique(TTL))(lambda value: None)
    return lambda value: task.route.key_of((value,), {})


def test_c10_no_two_meanings_share_a_key(url: str, namespace: str, redis: Any) -> None:
    with FastQ(url, namespace=namespace) as app:
        f: Any = app.task(name="f", unique=Unique(TTL))(lambda *args: None)
        own = Unique(TTL, key=lambda key: key)
        one: Any = app.task(name="x:y", unique=own)(lambda key: None)
        two: Any = app.task(name="x", unique=own)(lambda key: None)
        digest = f.route.key_of(("a",), {}).partition(b":")[2].decode()
        calls: list[Any] = [
            (f, ("a:b", "c")), (f, ("a", "b:c")), (f, ("a", "")), (f, ("a",)), (f, (["a", "b"],)), (f, ("a", "b")),
            (one, ("z",)), (two, ("y:z",)), (two, (digest,)), (two, ("#task",)), (two, ("x" * 300,)), (two, ("a%3Ab",)),
            (f.using(queue="a"), ("b:lock",)), (two.using(queue="a"), ("b:lock",)), (two.using(queue="a.b"), ("lock",)),
        ]  # fmt: skip

        for task, args in calls:
            assert not task.enqueue(*args).duplicate

        held = [key for queue in ("default", "a", "a.b") for key in locks(redis, namespace, queue)]
        assert len(held) == len(calls)
        with pytest.raises(ValueError, match="queue"):
            f.using(queue="a:b")
    prefixes = [queue_keys(namespace, queue).prefix for queue in ("default", "a", "a.b")]
    names = [key for key in redis.scan_iter(match=f"{namespace}:*") if not key.endswith(b":queues")]
    assert all(any(key.startswith(prefix) for prefix in prefixes) for key in names)


def test_c11_the_same_call_written_differently_is_one_job_on_every_path(url: str, namespace: str, redis: Any) -> None:
    with FastQ(url, namespace=namespace) as app:

        @app.task(name="f", unique=Unique(TTL))
        def f(a: int, b: int = 2, *, c: int = 3) -> None: ...

        holder = f.enqueue(1)
        assert [refused(f, 1, 2), refused(f, a=1), refused(f, 1, b=2, c=3), refused(f, 1, c=3)] == [holder.uid] * 4
        assert refused(f.using(delay=5), 1) == holder.uid
        bulk = f.enqueue_many([(1,), (1, 2), {"a": 1}, {"a": 1, "b": 2, "c": 3}, f.prepare(1, c=3)])
        assert (bulk.enqueued, bulk.duplicate_count) == (0, 5)
        with pytest.raises(DuplicateJobError):
            app.enqueue("f", a=1)

        @app.task(name="g", unique=Unique(TTL, key="order"))
        def g(order: str, at: float) -> None: ...

        holder = g.enqueue("o-1", 1.0)
        assert [refused(g, "o-1", float(moment)) for moment in range(2, 5)] == [holder.uid] * 3
        g.using(delay=60).enqueue("o-2", 1.0)
        assert len(scheduled(redis, namespace)) == 1
        with pytest.raises(UniqueConfigError, match="'ordr'"):
            app.task(name="h", unique=Unique(TTL, key="ordr"))(g.fn)
