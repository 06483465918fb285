"""Following a job: its status on its way, and its result, for whoever waits."""

import asyncio
import threading
import time
import uuid

import pytest

from fastq import Backoff, BrokerError, Drop, FastQ, JobFailed, ResultTimeout, ResultUnavailable, Unique
from fastq.broker import requests
from fastq.keys import queue_keys
from tests.support.bursts import BriefWorker, burst
from tests.support.process import wait_until
from tests.support.proxy import Proxy


class Serving:
    """A worker of the app in a thread of its own, for tests that wait at the same time."""

    def __init__(self, app: FastQ) -> None:
        self._worker = BriefWorker(app, grace=0)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._worker.arun(),))

    def __enter__(self) -> "Serving":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._worker.stop)
        self._thread.join(20)
        self._loop.close()


# --- status


def test_a_tracked_job_can_be_followed_all_the_way(app, call):
    seen = []

    @app.task(name="t", track=True, retries=Backoff(retries=1, delay=0.1))
    def t() -> None:
        seen.append(job.status())
        raise OSError

    job = t.using(delay=0.05).enqueue()
    assert call(job, "status") == "scheduled"
    burst(app)

    assert seen == ["running", "running"]
    assert call(job, "status") == "dead"
    app.queue().dead.replay(job)
    assert call(job, "status") == "waiting"
    app.queue().dead.delete(job)
    job.cancel()
    burst(app)
    assert call(job, "status") == "cancelled"


@pytest.mark.parametrize(
    ("options", "body", "state"),
    [
        ({}, lambda: None, "succeeded"),
        ({}, Drop, "dropped"),
        ({}, OSError, "dead"),
        ({"expires": 0.001}, lambda: None, "expired"),
    ],
    ids=["succeeded", "dropped", "dead", "expired"],
)
def test_the_end_of_a_tracked_job_is_known_afterwards(app, call, options, body, state):
    @app.task(name="t", retries=0)
    def t() -> None:
        if (made := body()) is not None:
            raise made

    by_id = t.using(job_id="i", retention=60, **options).enqueue()
    time.sleep(0.002)
    burst(app)

    assert call(by_id, "status") == state
    assert call(app.job(job_id="i"), "status") == state


def test_a_cancelled_job_says_so_when_it_was_scheduled_and_when_it_waited(app, call):
    task = app.task(name="t", track=True)(lambda: None)
    scheduled, waiting = task.using(delay=60).enqueue(), task.enqueue()

    assert call(scheduled, "cancel") is True
    assert call(scheduled, "status") == "cancelled"
    assert call(waiting, "cancel") is False
    burst(app)
    assert call(waiting, "status") == "cancelled"


def test_a_unique_job_can_be_followed_for_as_long_as_the_lock_is_its_own(app, call, redis, namespace):
    task = app.task(name="t", unique=Unique(ttl=60))(lambda n: None)

    job = call(task, "enqueue", 1)
    again = app.job(job.uid)

    assert (call(job, "status"), call(again, "status")) == ("waiting", "untracked")
    app.locks.release(task, 1)
    other = task.enqueue(1)
    assert (call(job, "status"), call(other, "status")) == ("untracked", "waiting")
    burst(app)
    assert call(other, "status") == "untracked"


def test_a_unique_job_whose_start_is_noted_in_its_lock_is_running(app):
    seen = []

    @app.task(name="t", unique=Unique(ttl=60, renew=True))
    def t() -> None:
        seen.append(job.status())

    job = t.enqueue()
    assert job.status() == "waiting"
    burst(app)

    assert seen == ["running"]


def test_a_plain_job_is_untracked_but_where_it_is_kept_anyway(app, call):
    @app.task(name="t", retries=1)
    def t() -> None:
        raise OSError

    now, later = t.enqueue(), t.using(delay=60).enqueue()
    assert (call(now, "status"), call(later, "status")) == ("untracked", "scheduled")
    burst(app)
    assert call(now, "status") == "retrying"
    dying = t.using(retries=0).enqueue()
    burst(app)
    assert call(dying, "status") == "dead"
    assert call(app.job(job_id="nobody's"), "status") == "unknown"


# --- results (C57)


def test_a_result_is_there_for_who_asks_after_the_end(app, call):
    job = app.task(name="t", result_ttl=60)(lambda n: {"n": n}).enqueue(5)
    burst(app)

    assert call(job, "result", timeout=5) == {"n": 5}
    assert call(app.job(job.uid), "result") == {"n": 5}


def test_a_result_of_none_is_a_result(app):
    job = app.task(name="t", result_ttl=60)(lambda: None).enqueue()
    burst(app)

    assert job.result(timeout=5) is None


def test_who_waits_is_woken_by_the_result_and_not_by_looking_again(app, call):
    task = app.task(name="t", result_ttl=60)(lambda: time.time())
    job = task.using(delay=0.3).enqueue()

    with Serving(app):
        ended = call(job, "result", timeout=10)
        late = time.time() - ended

    assert late < 1, "it looks again only after 10 s"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"track": True}, ResultUnavailable),
        ({"result_ttl": 60, "expires": 0.05}, JobFailed),
    ],
    ids=["success without a result", "expiry"],
)
def test_an_end_without_a_result_wakes_too(app, options, error):
    task = app.task(name="t", **options)(lambda: None)
    if "expires" in options:
        job = task.enqueue()
        time.sleep(0.1)  # it has expired
    else:
        job = task.using(delay=0.5).enqueue()
    begun = time.monotonic()

    with Serving(app), pytest.raises(error):
        job.result(timeout=10)

    assert time.monotonic() - begun < 5


def test_c57_a_job_that_keeps_no_result_is_refused_at_once(app, call):
    for job in (app.task(name="t")(lambda: None).enqueue(), app.using(delay=60).enqueue("t")):
        with pytest.raises(ResultUnavailable, match="keeps no result"):
            call(job, "result")


def test_c57_a_result_whose_time_has_passed_is_unavailable_and_says_that_the_job_has_succeeded(app, call):
    job = app.task(name="t", result_ttl=0.1)(lambda: 5).enqueue()
    burst(app)
    time.sleep(0.2)

    with pytest.raises(ResultUnavailable, match="has succeeded, but its result is not kept"):
        call(job, "result")


def test_c57_an_unknown_job_is_refused_at_once(app, call):
    with pytest.raises(ResultUnavailable, match="expired"):
        call(app.job(str(uuid.uuid4())), "result")
    with pytest.raises(ResultUnavailable, match="no job uses the id 'nobody'"):
        call(app.job(job_id="nobody"), "result")


async def until_blocked(redis):
    """Return once a client waits on the server."""
    while not redis.info("clients")["blocked_clients"]:
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("delay", [0, 60], ids=["waiting", "scheduled"])
def test_c57_a_cancelled_job_fails_for_who_waits(app, delay, redis):
    task = app.task(name="t", result_ttl=60)(lambda: None)
    job = task.using(delay=delay).enqueue()

    async def wait() -> None:
        waiting = asyncio.create_task(job.aresult())
        await asyncio.wait_for(until_blocked(redis), 8)
        await job.acancel()
        worker = BriefWorker(app)
        running = asyncio.create_task(worker.arun())
        with pytest.raises(JobFailed) as failed:
            await asyncio.wait_for(waiting, 8)
        assert failed.value.state == "cancelled"
        worker.stop()
        await running
        await app.aclose()

    asyncio.run(wait())


def test_c57_a_dead_job_fails_with_the_error_it_died_of(app, call):
    @app.task(name="t", retries=0, result_ttl=60)
    def t() -> None:
        raise LookupError("no such order")

    job = t.enqueue()
    burst(app)

    with pytest.raises(JobFailed, match="LookupError: no such order") as failed:
        call(job, "result")
    assert (failed.value.state, failed.value.job_uid) == ("dead", job.uid)
    assert "no such order" in failed.value.details["traceback"]


def test_c57_a_wait_has_an_end(app, call):
    job = app.task(name="t", result_ttl=60)(lambda: None).enqueue()

    begun = time.monotonic()
    with pytest.raises(ResultTimeout, match=r"is waiting: its result did not come within 0\.3 s"):
        call(job, "result", timeout=0.3)

    assert 0.25 < time.monotonic() - begun < 3


def test_c57_a_result_is_kept_from_the_end_of_its_job_on_not_from_its_enqueue(app):
    job = app.task(name="t", result_ttl=1)(lambda: 5).using(delay=0.9).enqueue()
    time.sleep(1)
    burst(app)

    assert job.result(timeout=5) == 5


def test_c57_a_wait_outlives_a_lost_connection(new_app, call, server, namespace):
    with Proxy(server) as proxy:
        app = new_app(url=proxy.url)
        task = app.task(name="t", result_ttl=60)(lambda: 5)
        direct = new_app()
        direct.task(name="t", result_ttl=60)(lambda: 5)
        job = task.using(delay=0.6).enqueue()
        answers: list[object] = []
        fault = proxy.on_request(b"XREAD", hook=lambda: None, nth=2)  # the second look blocks
        waiting = threading.Thread(target=lambda: answers.append(job.result(timeout=15)))
        waiting.start()
        assert fault.done.wait(5)
        proxy.cut()

        with Serving(direct):
            waiting.join(10)

        assert answers == [5]
        app.close()


def test_c57_a_server_that_stays_away_ends_the_wait(own_server, namespace):
    app = FastQ(own_server.url, namespace=namespace)
    job = app.task(name="t", result_ttl=60)(lambda: None).enqueue()
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            job.result()
        except BrokerError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    client = own_server.client()
    wait_until(lambda: any(row["cmd"] == "xread" for row in client.client_list() if row["name"] == "fastq"))
    own_server.kill()

    waiting.join(12)

    assert len(errors) == 1
    app.close()


def test_a_job_with_an_id_and_no_result_tells_its_waiter_that_it_has_succeeded(app):
    task = app.task(name="t")(lambda: 5)
    job = task.using(job_id="i").enqueue()

    with Serving(app), pytest.raises(ResultUnavailable, match="has succeeded"):
        job.result(timeout=8)


def test_a_lookup_of_a_status_changes_nothing(app, redis, namespace):
    keys = queue_keys(namespace, "default")
    app.broker.call(requests.status(keys, bytes(16), "i", b"t:x"))

    assert redis.keys(f"{namespace}:*") == []
