"""Dead jobs: looked at, replayed and deleted through `app.queue(name).dead`."""

import asyncio
import datetime as dt
import time
import uuid

import pytest

from fastq import ConfigError, DeadBounds, DuplicateJobError, JobFailed, JobIDConflictError, ReplayRefusal, Unique
from fastq.dead import UNREADABLE
from fastq.keys import queue_keys
from tests.support.bursts import BriefWorker, burst
from tests.support.queues import ids, locks, waiting


@pytest.fixture
def fail(app):
    """A task of which every job dies at once."""

    @app.task(name="fail", retries=0)
    def fail(n: int, when: dt.date | None = None) -> None:
        raise LookupError(f"no {n}")

    return fail


def test_a_dead_job_is_shown_with_what_it_was_and_why_it_died(app, call, fail):
    begun = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1)
    job = fail.using(job_id="event:7", unique=Unique(ttl=60, key="n")).enqueue(7, dt.date(2026, 1, 2))
    burst(app)

    [dead] = call(app.queue().dead, "list")

    assert (dead.uid, dead.queue, dead.task, dead.job_id) == (job.uid, "default", "fail", "event:7")
    assert (dead.args, dead.kwargs) == ((7, dt.date(2026, 1, 2)), {})
    assert str(dead.key).startswith("#")
    assert (dead.reason, dead.error, dead.attempts, dead.crashes) == ("no attempts left", "LookupError: no 7", 1, 0)
    assert 'raise LookupError(f"no {n}")' in dead.traceback
    assert begun < dead.enqueued_at <= dead.died_at < dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1)
    assert not dead.unreadable
    for name in (job, job.uid, dead, app.job(job_id="event:7")):
        assert call(app.queue().dead, "get", name) == dead


def test_what_is_not_dead_is_none_and_what_is_no_uid_is_refused(app, call, fail):
    job = fail.enqueue(1)

    assert call(app.queue().dead, "get", job) is None
    assert call(app.queue().dead, "get", app.job(job_id="nobody's")) is None
    assert call(app.queue().dead, "get", str(uuid.uuid4())) is None
    with pytest.raises(ConfigError, match="give its uid"):
        call(app.queue().dead, "get", "fail")


def test_pages_begin_with_those_that_died_last(app, call, fail):
    for n in range(5):
        fail.enqueue(n)
        burst(app)
    dead = app.queue().dead

    assert call(dead, "count") == 5
    assert [job.args[0] for job in call(dead, "list", limit=2)] == [4, 3]
    assert [job.args[0] for job in call(dead, "list", limit=3, offset=3)] == [1, 0]
    assert call(dead, "list", offset=5) == []


def test_arguments_of_an_unknown_task_are_shown_as_msgpack_has_them(app, new_app, fail):
    fail.enqueue(3, dt.date(2026, 1, 2))
    burst(app)

    [dead] = new_app().queue().dead.list()

    assert (dead.task, dead.args, dead.kwargs) == ("fail", (3, "2026-01-02"), {})


def test_arguments_that_do_not_fit_are_dead_at_once_and_shown_as_they_are(app, new_app):
    app.task(name="t", retries=5)(lambda n, m: None)
    new_app().enqueue("t", "just one")
    burst(app)

    [dead] = app.queue().dead.list()

    assert (dead.args, dead.reason) == (("just one",), "the arguments do not fit the task")
    assert "missing" in dead.error


def test_a_replayed_job_runs_again_from_its_first_attempt_with_its_uid(app, call, redis, namespace):
    done = []

    @app.task(name="flaky", retries=1)
    def flaky() -> None:
        done.append(1)
        if len(done) < 3:
            raise OSError("not yet")

    job = flaky.using(retries=0).enqueue()
    burst(app)

    result = call(app.queue().dead, "replay", job)

    assert (result.replayed, result.refused) == (1, [])
    [message] = waiting(redis, namespace)
    assert (str(uuid.UUID(bytes=message.uid)), message.attempt, message.crashes) == (job.uid, 1, 0)
    assert app.queue().dead.count() == 0
    assert redis.hlen(queue_keys(namespace, "default").jobs) == 0
    burst(app)
    assert (len(done), app.queue().dead.count()) == (2, 1)


def test_a_replay_takes_lock_and_id_again_and_a_second_call_meets_them(app, call, fail, redis, namespace):
    unique = fail.using(unique=Unique(ttl=60, key="n"), job_id="event:7")
    job = unique.enqueue(7)
    burst(app)
    assert locks(redis, namespace) == {}

    assert call(app.queue().dead, "replay", job).replayed == 1

    assert list(locks(redis, namespace).values()) == [uuid.UUID(job.uid).bytes]
    assert list(ids(redis, namespace).values()) == [uuid.UUID(job.uid).bytes]
    with pytest.raises(JobIDConflictError):
        unique.enqueue(8)
    with pytest.raises(DuplicateJobError):
        fail.using(unique=Unique(ttl=60, key="n")).enqueue(7)


def test_a_job_whose_lock_another_has_by_now_stays_dead_and_is_reported(app, call, fail):
    unique = fail.using(unique=Unique(ttl=60, key="n"))
    first, second = unique.enqueue(1), unique.enqueue(2)
    burst(app)
    live = unique.enqueue(1)

    result = call(app.queue().dead, "replay", first, second, str(uuid.UUID(int=5)))

    assert result.replayed == 1
    assert result.refused == [ReplayRefusal(first.uid, "lock held"), ReplayRefusal(str(uuid.UUID(int=5)), "not dead")]
    assert result.refused_count == 2
    assert [dead.uid for dead in app.queue().dead.list()] == [first.uid]
    assert app.locks.get(unique, 1).job_uid == live.uid


def test_of_two_dead_jobs_with_one_lock_the_older_is_replayed(app, call, fail):
    unique = fail.using(unique=Unique(ttl=60, key="n"))
    first = unique.enqueue(1)
    burst(app)
    second = unique.enqueue(1)
    burst(app)

    result = call(app.queue().dead, "replay_all")

    assert (result.replayed, result.refused) == (1, [ReplayRefusal(second.uid, "lock held")])
    assert app.locks.get(unique, 1).job_uid == first.uid


def test_all_of_many_are_replayed_those_that_cannot_be_left_behind(app, call, redis, namespace):
    failing = [True]

    @app.task(name="t", retries=0)
    async def t(n: int) -> None:
        if failing:
            raise OSError

    t.enqueue_many((n,) for n in range(450))
    held = t.using(unique=Unique(ttl=60)).enqueue(0)
    burst(app)
    t.using(unique=Unique(ttl=60)).enqueue(0)
    assert app.queue().dead.count() == 451

    result = call(app.queue().dead, "replay_all")

    assert (result.replayed, result.refused) == (450, [ReplayRefusal(held.uid, "lock held")])
    failing.clear()
    burst(app)
    assert [dead.uid for dead in app.queue().dead.list()] == [held.uid]
    assert app.queue().counts().totals["succeeded"] == 451


def test_large_jobs_are_replayed_and_deleted_a_few_at_a_time(app, call, redis, namespace):
    @app.task(name="t", retries=0)
    async def t(blob: bytes) -> None:
        raise OSError

    t.enqueue_many((bytes(600_000),) for _ in range(5))
    burst(app)
    keys = queue_keys(namespace, "default")
    bytes_before = int(redis.hget(keys.stats, "dead_bytes"))

    assert call(app.queue().dead, "replay_all").replayed == 5
    assert redis.hget(keys.stats, "dead_bytes") == b"0"
    burst(app)
    assert int(redis.hget(keys.stats, "dead_bytes")) == bytes_before > 3_000_000
    assert call(app.queue().dead, "delete_all") == 5
    assert (redis.hget(keys.stats, "dead_bytes"), redis.exists(keys.dead, keys.jobs)) == (b"0", 0)


def test_deleting_a_dead_job_frees_its_lock_and_its_id(app, call, fail, redis, namespace):
    unique = fail.using(unique=Unique(ttl=60, until="success"), job_id="i")
    jobs = [unique.enqueue(1), fail.enqueue(2), fail.enqueue(3)]
    burst(app)
    assert len(locks(redis, namespace)) == len(ids(redis, namespace)) == 1

    assert call(app.queue().dead, "delete", *jobs[:2], str(uuid.UUID(int=5))) == 2

    assert locks(redis, namespace) == ids(redis, namespace) == {}
    assert [dead.uid for dead in app.queue().dead.list()] == [jobs[2].uid]
    assert unique.enqueue(1).uid


def test_an_expired_span_begins_anew_with_a_replay(app, fail, redis, namespace):
    job = fail.using(expires=1, delay=0.05).enqueue(1)
    burst(app)
    time.sleep(1.1)  # by now it would be too late for its first start

    app.queue().dead.replay(job)

    [message] = waiting(redis, namespace)
    assert message.expires_ms - time.time() * 1000 == pytest.approx(1000, abs=300)
    burst(app)
    [dead] = app.queue().dead.list()
    assert dead.args == (1,), "it has run, and failed, once more"


@pytest.mark.parametrize("garbage", [b"short", b"\xff" * 300, bytes(65536)], ids=["short", "longer", "longest"])
def test_bytes_that_are_no_message_are_shown_as_such_and_replayed_as_they_are(app, call, redis, namespace, garbage):
    app.task(name="t")(lambda: None)
    keys = queue_keys(namespace, "default")
    redis.xadd(keys.stream, {b"f": garbage})
    burst(app)

    [dead] = call(app.queue().dead, "list")
    assert (dead.task, dead.unreadable, dead.args, dead.payload) == (UNREADABLE, True, None, garbage)
    assert "cannot be read" in dead.reason

    assert call(app.queue().dead, "replay", dead).replayed == 1
    assert [fields for _, fields in redis.xrange(keys.stream)] == [{b"f": garbage}]
    assert app.queue().dead.count() == 0
    burst(app)
    assert [again.payload for again in app.queue().dead.list()] == [garbage]


def test_a_frame_that_a_deploy_makes_readable_again_runs_after_its_replay(app, redis, namespace):
    """What was buried for a fault of the reader runs once the reader is right."""
    from fastq.codec import Template, new_uid

    ran = []
    app.task(name="t")(lambda n: ran.append(n))
    app.enqueue("t", 1)
    [message] = waiting(redis, namespace)
    keys = queue_keys(namespace, "default")
    redis.delete(keys.stream)
    now = int(time.time() * 1000)
    uid = new_uid(now)
    buried = Template(UNREADABLE).encode((message.raw,), {}, uid, now)
    redis.zadd(keys.dead, {uid: now})
    redis.hset(keys.jobs, uid, buried)

    assert app.queue().dead.replay_all().replayed == 1
    burst(app)

    assert ran == [1]


def test_a_replayed_job_of_an_unknown_version_keeps_its_bytes_but_for_the_time_of_its_enqueue(app, redis, namespace):
    app.task(name="t")(lambda: None)
    app.enqueue("t")
    [message] = waiting(redis, namespace)
    keys = queue_keys(namespace, "default")
    redis.delete(keys.stream)
    raw = message.raw[:4] + b"\x07" + message.raw[5:]
    redis.zadd(keys.dead, {message.uid: 1})
    redis.hset(keys.jobs, mapping={message.uid: raw, message.uid + b"!": "unknown message version 7"})

    [dead] = app.queue().dead.list()
    assert (dead.task, dead.reason, dead.args) == ("", "unknown message version 7", None)
    assert app.queue().dead.replay(dead).replayed == 1

    [(_, fields)] = redis.xrange(keys.stream)
    back = fields[b"f"]
    assert (back[:26], back[34:]) == (raw[:26], raw[34:])


def test_a_replay_wakes_nobody_with_the_old_end_of_a_tracked_job(app, redis, namespace):
    failing = [True]

    @app.task(name="t", retries=0, result_ttl=60)
    def t() -> int:
        if failing:
            raise OSError("down")
        return 5

    job = t.enqueue()
    burst(app)
    with pytest.raises(JobFailed, match="down"):
        job.result(timeout=5)

    app.queue().dead.replay(job)

    assert job.status() == "waiting"
    failing.clear()
    burst(app)
    assert job.result(timeout=5) == 5


@pytest.mark.parametrize(
    "bounds", [DeadBounds(jobs=3), DeadBounds(size=3000), DeadBounds(age=0)], ids=["number", "bytes", "age"]
)
def test_the_oldest_dead_jobs_go_when_there_are_too_many_too_large_or_too_old_ones(new_app, redis, namespace, bounds):
    app, keys = new_app(lease=0.5, max_dead=bounds), queue_keys(namespace, "default")

    @app.task(name="t", retries=0, unique=Unique(ttl=60, until="success"))
    async def t(n: int) -> None:
        raise OSError from None

    t.using(job_id="first").enqueue(0)
    burst(app)
    t.enqueue_many((n,) for n in range(1, 8))

    def counted(name: str) -> int:
        return int(redis.hget(keys.stats, name) or 0)

    async def run() -> None:
        worker = BriefWorker(app)
        running = asyncio.create_task(worker.arun())
        while counted("dead") < 8 or counted("dead_bytes") > bounds.size or redis.zcard(keys.dead) > bounds.jobs or (
            not bounds.age and redis.exists(keys.dead)
        ):
            await asyncio.sleep(0.02)
        worker.stop()
        await running

    asyncio.run(asyncio.wait_for(run(), 20))

    dead = app.queue().dead.list()
    bodies = redis.hvals(keys.jobs)
    assert len(dead) == len(bodies) == len(locks(redis, namespace)) == 8 - counted("pruned") < 8
    assert counted("dead_bytes") == sum(map(len, bodies)) <= bounds.size
    assert len(dead) == (0 if not bounds.age else min(bounds.jobs, bounds.size // len(bodies[0])))
    assert 0 not in [job.args[0] for job in dead], "the oldest goes first"
    assert ids(redis, namespace) == {}
