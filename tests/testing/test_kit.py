"""`app.testing()`: jobs are enqueued, run and looked at in a place of their own, by a clock that the test moves."""

import asyncio
import datetime as dt
import os
import time

import pytest

from fastq import (
    Backoff,
    Drop,
    DuplicateJobError,
    FastQ,
    JobFailed,
    JobIDConflictError,
    Middleware,
    PayloadError,
    Retry,
    Unique,
    current_job,
)
from fastq.testing import Testing


def states(testing) -> list[tuple[str, str]]:
    return [(outcome.task, outcome.state) for outcome in testing.outcomes]


def test_what_is_enqueued_waits_and_runs_in_this_process(app):
    pids = []

    @app.task(name="greet")
    def greet(name: str, *, loud: bool = False) -> str:
        pids.append(os.getpid())
        return f"hello {name}"

    with app.testing() as t:
        job = greet.enqueue("ada", loud=True)
        [waiting] = t.jobs("waiting")
        assert (waiting.uid, waiting.task, waiting.queue, waiting.attempt) == (job.uid, "greet", "default", 1)
        assert (waiting.args, waiting.kwargs, waiting.due_at) == (("ada",), {"loud": True}, None)

        t.run()

        [outcome] = t.outcomes
        assert (outcome.uid, outcome.state, outcome.result, outcome.error) == (job.uid, "succeeded", "hello ada", None)
        assert (outcome.args, outcome.kwargs, outcome.attempt) == (("ada",), {"loud": True}, 1)
        assert t.jobs("waiting") == []
    assert pids == [os.getpid()]


def test_jobs_that_jobs_enqueue_run_too_whatever_their_queue(app):
    @app.task(name="first")
    def first(n: int) -> None:
        second.enqueue(n)

    @app.task(name="second", queue="b")
    async def second(n: int) -> None:
        await third.using(queue="not known before").aenqueue(n) if n > 1 else await third.using(queue="c").aenqueue(n)

    @app.task(name="third")
    async def third(n: int) -> None: ...

    with app.testing() as t:
        first.enqueue(1)
        t.run()

        assert states(t) == [("first", "succeeded"), ("second", "succeeded"), ("third", "succeeded")]
        assert [outcome.queue for outcome in t.outcomes] == ["default", "b", "c"]


def test_uniqueness_is_on_and_a_lock_ends_with_its_job_or_its_time(app):
    task = app.task(name="t", unique=Unique(ttl=60))(lambda n: None)
    window = app.task(name="w", unique=Unique(ttl=60, until="ttl"))(lambda n: None)

    with app.testing() as t:
        task.enqueue(1)
        with pytest.raises(DuplicateJobError):
            task.enqueue(1)
        t.run()
        task.enqueue(1)

        window.enqueue(1)
        t.run()
        with pytest.raises(DuplicateJobError):
            window.enqueue(1)
        assert app.locks.get(window, 1) is not None
        t.advance(59)
        with pytest.raises(DuplicateJobError) as refused:
            window.enqueue(1)
        assert 0 < refused.value.expires_in <= 1
        t.advance(1)
        window.enqueue(1)
        assert app.locks.release(window, 1)


def test_a_scheduled_job_waits_until_the_clock_has_moved_far_enough(app):
    task = app.task(name="t")(lambda: None)

    with app.testing() as t:
        task.using(delay=60).enqueue()
        task.using(at=t.now + dt.timedelta(hours=2)).enqueue()
        t.run()
        assert t.outcomes == []
        first, second = t.jobs("scheduled")
        assert (first.due_at - t.now).total_seconds() == pytest.approx(60, abs=2)
        assert (second.due_at - t.now).total_seconds() == pytest.approx(7200, abs=2)

        t.advance(dt.timedelta(minutes=1))

        assert (len(t.jobs("waiting")), len(t.jobs("scheduled"))) == (1, 1)
        t.run()
        t.advance(7200)
        t.run()
        assert states(t) == [("t", "succeeded")] * 2


def test_a_failing_job_is_retried_as_the_clock_moves_and_then_dead(app):
    @app.task(name="t", retries=Backoff(retries=2, delay=10, factor=6, jitter=0))
    def fail() -> None:
        raise OSError(current_job().attempt)

    with app.testing() as t:
        job = fail.enqueue()
        t.run()
        [retrying] = t.jobs("retrying")
        assert (retrying.attempt, job.status()) == (2, "retrying")
        t.advance(9)
        t.run()
        assert len(t.outcomes) == 1
        t.advance(1)
        t.run()
        t.advance(60)
        t.run()

        assert [(o.state, o.attempt, str(o.error)) for o in t.outcomes] == [
            ("retrying", 1, "1"),
            ("retrying", 2, "2"),
            ("dead", 3, "3"),
        ]
        assert [dead.uid for dead in t.jobs("dead")] == [job.uid]
        assert app.queue().dead.replay_all().replayed == 1
        assert len(t.jobs("waiting")) == 1


def test_every_end_of_a_job_is_told(app):
    @app.task(name="drop")
    async def drop() -> None:
        raise Drop("not needed")

    @app.task(name="again")
    async def again() -> None:
        raise Retry(delay=0) if current_job().attempt == 1 else Drop

    late = app.task(name="late", expires=30)(lambda: None)
    stop = app.task(name="stop")(lambda n: None)
    picky = app.task(name="picky")(lambda n: None)
    slow = app.task(name="slow", timeout=0.05, retries=0)(asyncio_sleep)

    with app.testing() as t:
        late.enqueue()
        t.advance(31)
        drop.enqueue()
        again.enqueue()
        stop.enqueue(5).cancel()
        app.using(queue="default").enqueue("unknown")
        slow.enqueue(5)
        t.run()

        assert sorted(states(t)) == sorted(
            [
                ("late", "expired"),
                ("drop", "dropped"),
                ("again", "retrying"),
                ("again", "dropped"),
                ("stop", "cancelled"),
                ("slow", "dead"),
            ]
        )
        assert isinstance(next(o for o in t.outcomes if o.task == "slow").error, TimeoutError)
        assert next(o for o in t.outcomes if o.task == "stop").args == (5,)
        assert [job.task for job in t.jobs("scheduled")] == ["unknown"], "given back until somebody knows it"
        with pytest.raises(PayloadError, match="missing"):
            picky.enqueue()


async def asyncio_sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


def test_results_and_ids_live_and_end_by_the_moved_clock(app):
    task = app.task(name="t", result_ttl=300)(lambda n: n + 1)

    with app.testing() as t:
        job = task.using(job_id="event:1", retention=3600).enqueue(1)
        t.run()
        assert (job.status(), job.result(timeout=1)) == ("succeeded", 2)
        with pytest.raises(JobIDConflictError):
            task.using(job_id="event:1").enqueue(1)
        t.advance(3600)
        assert job.status() == "unknown"
        task.using(job_id="event:1").enqueue(1)


def test_a_failed_result_is_an_error_under_test_as_in_earnest(app):
    @app.task(name="t", retries=0, result_ttl=60)
    def fail() -> None:
        raise OSError("down")

    with app.testing() as t:
        job = fail.enqueue()
        t.run()
        with pytest.raises(JobFailed, match="down"):
            job.result(timeout=1)


def test_calls_are_checked_against_their_annotations(app):
    task = app.task(name="t")(takes_a_date)

    with app.testing():
        task.enqueue(dt.date(2026, 1, 1))
        with pytest.raises(PayloadError, match="when"):
            task.enqueue(5)


def takes_a_date(when: dt.date) -> None: ...


def test_every_test_has_a_place_of_its_own_and_afterwards_the_program_is_as_before(app):
    task = app.task(name="t", unique=Unique(ttl=60))(lambda n: None)
    bound, call = task.using(queue="q"), task.prepare(1)
    before = app.config, app.broker

    for _ in range(2):
        with app.testing() as t:
            assert t.jobs("waiting") == []
            bound.enqueue(1)
            app.enqueue("t", 2)
            assert app.enqueue_many([call, bound.prepare(1)]).enqueued == 1
            assert len(t.jobs("waiting")) == 3
            assert app.config.namespace.startswith("test-")

    assert (app.config, app.broker) == before
    assert task.route.keys.namespace == bound.route.keys.namespace == "shop"
    with pytest.raises(RuntimeError, match="within"):
        t.jobs("waiting")


def test_outside_of_the_block_jobs_go_to_the_programs_own_server_again(url, namespace, redis):
    app = FastQ(url, namespace=namespace)
    task = app.task(name="t")(lambda n: None)
    early = task.using(queue="q")

    with app.testing():
        task.enqueue(1)
        inside = task.using(queue="q")
        inside.enqueue(2)
    assert redis.keys(f"{namespace}:*") == []
    early.enqueue(3)
    inside.enqueue(4)

    assert redis.xlen(f"{namespace}:{{q}}:stream") == 2
    app.close()


def test_nothing_of_a_test_stays_on_the_server(app, url, redis):
    task = app.task(name="t", unique=Unique(ttl=60), result_ttl=60)(lambda n: None)
    before = set(redis.keys("test-*"))

    with Testing(app, url) as t:
        for n in range(3):
            task.using(job_id=str(n)).enqueue(n)
        t.run()
        assert set(redis.keys("test-*")) - before

    assert set(redis.keys("test-*")) == before


def test_a_test_within_a_test_of_the_same_program_is_refused(app):
    with app.testing(), pytest.raises(RuntimeError, match="already"), app.testing():
        pass


def test_the_end_of_a_failing_block_is_as_that_of_any_other(app):
    before = app.broker
    with pytest.raises(ZeroDivisionError), app.testing():
        raise ZeroDivisionError
    assert app.broker is before


def test_async_code_enqueues_runs_and_waits_on_its_own_event_loop(app):
    @app.task(name="t", result_ttl=60)
    async def double(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    async def test() -> None:
        async with app.testing() as t:
            jobs = await asyncio.gather(*(double.aenqueue(n) for n in range(5)))
            waiting = asyncio.create_task(jobs[4].aresult(timeout=10))
            with pytest.raises(RuntimeError, match="arun"):
                t.run()
            await t.arun()
            assert sorted(outcome.result for outcome in t.outcomes) == [0, 2, 4, 6, 8]
            assert await waiting == 8
            await double.using(delay=5).aenqueue(9)
            t.advance(5)
            await t.arun()
            assert t.outcomes[-1].result == 18

    asyncio.run(test())


def test_jobs_run_one_after_the_other_in_their_order_unless_asked_otherwise(app):
    running, most = [], []

    @app.task(name="t")
    async def t(n: int) -> None:
        running.append(n)
        most.append(len(running))
        await asyncio.sleep(0.01)
        running.remove(n)

    with app.testing() as testing:
        t.enqueue_many((n,) for n in range(6))
        testing.run()
        assert [outcome.args for outcome in testing.outcomes] == [(n,) for n in range(6)]
        assert max(most) == 1
        t.enqueue_many((n,) for n in range(6))
        testing.run(concurrency=6)
        assert max(most) == 6


def test_a_task_for_processes_runs_in_this_one_and_its_jobs_go_where_the_test_looks(app):
    @app.task(name="heavy", executor="process")
    def heavy() -> None:
        light.enqueue()

    light = app.task(name="light")(lambda: None)

    with app.testing() as t:
        heavy.enqueue()
        t.run()
        assert states(t) == [("heavy", "succeeded"), ("light", "succeeded")]


def test_a_run_takes_little_time(app):
    task = app.task(name="t")(lambda: None)
    with app.testing() as t:
        task.enqueue()
        t.run()
        begun = time.monotonic()
        for _ in range(5):
            task.enqueue()
            t.run()
        assert time.monotonic() - begun < 5
        assert len(t.outcomes) == 6


def test_a_state_that_no_job_stands_in_is_refused(app):
    with app.testing() as t, pytest.raises(ValueError, match="outcomes"):
        t.jobs("succeeded")


def test_middleware_is_around_calls_and_runs_under_test_too(app):
    seen = []

    @app.middleware
    class Watch(Middleware):
        def enqueue(self, call):
            seen.append(("enqueue", call.task))

        async def run(self, job, call_next):
            seen.append(("run", job.task))
            return await call_next()

    task = app.task(name="t")(lambda: 5)

    with app.testing() as t:
        task.enqueue()
        t.run()

        assert t.outcomes[0].result == 5
    assert seen == [("enqueue", "t"), ("run", "t")]


def test_redis_options_that_no_other_process_could_have_are_no_matter_here(url):
    class Local(dict):
        """Pickle takes none of it."""

    app = FastQ(url, redis_options={"socket_keepalive_options": Local()})
    ran = []
    note = app.task(name="note")(lambda n: ran.append(n))

    with Testing(app, url) as t:
        note.enqueue(1)
        t.run()

    assert ran == [1]
