"""`renew`: the lock lives as long as its job, no two jobs of one key run at once, and none of them starves."""

import itertools
import signal
import time
from typing import Any

import pytest

from fastq import DuplicateJobError
from tests.support.process import Child, script, wait_until
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.unique.stage import Run, Stage, serving
from tests.unique.world import World

DAY = 86_400


@pytest.fixture
def task(stage: Stage) -> Any:
    return stage.task(renew=True)


def evict(stage: Stage, task: Any, key: str) -> None:
    """Take the lock away, as a server without memory does."""
    assert stage.app.locks.release(task, key)


def parked(stage: Stage) -> int:
    """How many keys have jobs parked behind them."""
    return int(stage.client.scard(stage.keys().parking))


def in_turn(runs: list[Run]) -> bool:
    """Whether each run began after the one before had ended."""
    return all(one.ended is not None and one.ended <= other.began for one, other in itertools.pairwise(runs))


def test_while_a_job_waits_its_lock_outlives_a_day_past_its_due_time(idle_stage: Any) -> None:
    stage = idle_stage()
    stage.task(renew=True).enqueue("a")
    stage.task(renew=True).using(delay=3600).enqueue("b")

    now, later = stage.lock(stage.task(renew=True), "a"), stage.lock(stage.task(renew=True), "b")

    assert now is not None
    assert later is not None
    assert DAY - 60 < now.expires_in <= DAY
    assert DAY + 3540 < later.expires_in <= DAY + 3600


def test_the_beat_extends_the_lock_of_a_job_that_runs_longer_than_its_ttl(stage: Stage) -> None:
    task, key = stage.app.tasks["brief.renew"], stage.key()
    job = task.enqueue(key)
    run = stage.run_of(key)
    seen = []
    while time.monotonic() < run.began + 2:  # the ttl is 1 s, and so is the lease
        lock = stage.lock(task, key)
        assert lock is not None
        assert lock.job_uid == job.uid
        seen.append(lock.expires_in)
        time.sleep(0.05)

    assert 1 < min(seen) <= max(seen) <= 2, "max(ttl, 2 x lease), extended about every fifth of the lease"
    run.end()
    stage.wait_free(task, key)


def test_what_a_job_sees_of_its_lock_is_true(stage: Stage) -> None:
    for task in (stage.app.tasks["brief.renew"], stage.task()):
        key = stage.key()
        task.enqueue(key)
        run = stage.run_of(key)
        for _ in range(12):
            told, lock = run.job.lock, stage.lock(task, key)
            assert told is not None
            assert lock is not None
            assert told.key == lock.key
            assert 0 < told.expires_in <= lock.expires_in + 0.05, "it promises no more than there is"
            assert lock.expires_in - told.expires_in < 1
            time.sleep(0.05)
        run.end()


def test_a_lock_that_is_evicted_under_a_running_job_is_taken_again(stage: Stage, task: Any) -> None:
    key = stage.key()
    job = task.enqueue(key)
    run = stage.run_of(key)

    evict(stage, task, key)
    lock = stage.wait_state(task, key, "running", timeout=3)

    assert lock.job_uid == job.uid
    run.end()
    stage.wait_free(task, key)


def test_a_call_that_got_in_while_the_lock_was_gone_waits_for_the_running_job(stage: Stage, task: Any) -> None:
    key = stage.key()
    task.enqueue(key, 1)
    first = stage.run_of(key)
    evict(stage, task, key)
    second = task.enqueue(key, 2)
    wait_until(lambda: parked(stage) == 1)

    with pytest.raises(DuplicateJobError) as caught:
        task.enqueue(key, 3)
    assert caught.value.job_uid == second.uid
    evict(stage, task, key)
    with pytest.raises(DuplicateJobError):
        task.enqueue(key, 4)  # while anything is parked the key counts as held
    assert len(stage.of(key)) == 1
    first.end()

    stage.run_of(key, 2).end()
    stage.wait_free(task, key)
    assert [run.change for run in stage.of(key)] == [1, 2]
    assert in_turn(stage.of(key))
    assert parked(stage) == 0


def test_many_parked_jobs_run_one_after_the_other_in_their_order(idle_stage: Any) -> None:
    stage = idle_stage()
    task = stage.task(renew=True)
    jobs = []
    for change in range(5):
        jobs.append(task.enqueue("k", change))
        evict(stage, task, "k")

    stage.let("k")
    with serving(stage.app):
        wait_until(lambda: len(stage.of("k")) == 5)
        stage.wait_free(task, "k")

    assert [run.uid for run in stage.of("k")] == [job.uid for job in jobs]
    assert in_turn(stage.of("k"))


def test_a_lock_that_a_waiting_job_took_is_taken_over(idle_stage: Any) -> None:
    stage = idle_stage()
    task = stage.task(renew=True)
    first = task.enqueue("k", 1)
    evict(stage, task, "k")
    second = task.enqueue("k", 2)
    lock = stage.lock(task, "k")
    assert lock is not None
    assert lock.job_uid == second.uid

    with serving(stage.app):
        run = stage.run_of("k")
        wait_until(lambda: parked(stage) == 1)
        taken = stage.wait_state(task, "k", "running")
        assert taken.job_uid == run.uid == first.uid
        run.end()
        other = stage.run_of("k", 2)
        assert other.uid == second.uid
        other.end()
        stage.wait_free(task, "k")
    assert in_turn(stage.of("k"))


def test_a_retry_keeps_its_lock_and_others_wait_for_its_end(stage: Stage, task: Any) -> None:
    key = stage.key()
    job = task.using(retries=1).enqueue(key, 1)
    first = stage.run_of(key)
    evict(stage, task, key)
    stage.wait_state(task, key, "running", timeout=3)  # taken again
    first.fail()

    second = stage.run_of(key, 2)

    lock = stage.wait_state(task, key, "running")
    assert (second.uid, second.attempt, lock.job_uid) == (job.uid, 2, job.uid)
    second.end()
    stage.wait_free(task, key)


def test_a_job_that_is_handed_back_keeps_its_lock(idle_stage: Any) -> None:
    stage = idle_stage()
    task = stage.task(renew=True)
    job = task.enqueue("k")
    with serving(stage.app):
        stage.run_of("k")

    lock = stage.lock(task, "k")

    assert lock is not None
    assert (lock.job_uid, lock.state) == (job.uid, "waiting")
    assert DAY - 60 < lock.expires_in <= DAY
    assert not stage.client.exists(stage.keys().running)
    with serving(stage.app):
        run = stage.run_of("k", 2)
        assert (run.uid, run.attempt) == (job.uid, 1)
        run.end()
        stage.wait_free(task, "k")


WORKER = """
import time, redis
from tests.unique.stage import Stage, serving
stage = Stage(sys.argv[1], sys.argv[2], redis.Redis.from_url(sys.argv[1]))
with serving(stage.app):
    print("serves")
    told = 0
    while True:
        while told < len(stage.runs):
            print("runs", stage.runs[told].key, stage.runs[told].fence)
            told += 1
        for run in stage.runs:
            if run.ended:
                print("left", run.key, f"{run.ended:.3f}")
        time.sleep(0.01)
"""


def worker_process(stage: Stage) -> Child:
    """A worker in a process of its own, which serves already and whose jobs do not end by themselves."""
    child = script(WORKER, stage.app.config.url or "", stage.namespace)
    child.wait_line("serves", 30)
    return child


def test_the_holder_s_worker_is_killed_while_others_are_parked(idle_stage: Any) -> None:
    stage = idle_stage()
    task = stage.task(renew=True)
    with worker_process(stage) as child:
        first = task.enqueue("k", 1)
        child.wait_line("runs k")
        evict(stage, task, "k")
        second = task.enqueue("k", 2)
        wait_until(lambda: parked(stage) == 1)
        child.kill()

    stage.let("k")
    with serving(stage.app):
        wait_until(lambda: len(stage.of("k")) == 2, 20)
        stage.wait_free(task, "k")

    assert {run.uid for run in stage.of("k")} == {first.uid, second.uid}
    assert in_turn(stage.of("k"))


def test_a_stopped_worker_that_wakes_up_cancels_its_renew_runs_within_a_second_and_has_the_lower_fence(idle_stage: Any) -> None:
    stage = idle_stage()
    task = stage.task(renew=True)
    with worker_process(stage) as child:
        job = task.enqueue("k")
        fence = int(child.wait_line(r"runs k (\d+)")[1])
        child.send(signal.SIGSTOP)

        with serving(stage.app):
            run = stage.run_of("k", timeout=20)
            assert run.uid == job.uid
            assert run.fence > fence
            woke = time.monotonic()
            child.send(signal.SIGCONT)
            left = float(child.wait_line(r"left k (\S+)")[1])
            assert left - woke < 3, "1 s, and 3 s on a slow machine"
            lock = stage.lock(task, "k")
            assert lock is not None
            assert (lock.job_uid, lock.state) == (job.uid, "running")
            run.end()
            stage.wait_free(task, "k")


def test_a_worker_that_hears_nothing_for_0_7_of_the_lease_cancels_its_renew_runs_and_starts_nothing(
    server: Server, idle_stage: Any
) -> None:
    with Proxy(server) as proxy:
        stage, direct = idle_stage(url=proxy.url), idle_stage()
        renewed, fixed = stage.task(renew=True), stage.task()
        renewed.enqueue("renewed")
        fixed.enqueue("fixed")
        with serving(stage.app):
            run, other = stage.run_of("renewed"), stage.run_of("fixed")
            proxy.black_hole()
            began = time.monotonic()

            run.wait_ended()

            assert time.monotonic() - began < 3, "0.7 s and a look, and 3 s on a slow machine"
            assert run.job.cancelled
            assert other.ended is None
            direct.task().enqueue("new")
            time.sleep(0.3)  # nothing to wait for: it must not start
            assert not stage.of("new")
            proxy.flow()
            again = stage.run_of("renewed", 2, timeout=20)
            assert (again.uid, again.attempt) == (run.uid, 1)
            assert again.fence > run.fence
            stage.run_of("new", timeout=20)
            for key in ("renewed", "fixed", "new"):
                stage.let(key)
            stage.wait_free(renewed, "renewed")


def test_a_frozen_worker_s_job_does_not_starve_those_parked_behind_it(world: World) -> None:
    policy = ("done", "raise", True)
    world.enqueue("x", policy)
    frozen, other = world.join(), world.join()
    world.fetch(frozen)
    [first] = frozen.jobs
    world.start(frozen, first)
    world.evict("x")
    world.enqueue("x", policy)
    world.fetch(other)
    [second] = other.jobs
    world.start(other, second)
    assert world.look().jobs[second][0] == "parked"

    world.kill(frozen, seen=False)
    world.check()

    assert not world.look().running
    world.drain()
