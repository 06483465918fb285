"""One job: how it gets into its queue, and what its message carries."""

import asyncio
import datetime as dt
import logging
import multiprocessing
import threading
import time
import uuid

import pytest

from fastq import Backoff, BrokerError, FastQ, PayloadError, QueueFull
from fastq.codec import encode_plain
from tests.support.queues import arguments, frames, scheduled, waiting


def test_an_enqueued_job_waits_in_its_queue_with_its_arguments(app, call, redis, namespace):
    @app.task(queue="mail", name="send")
    def send(order_id: str, *, urgent: bool = False): ...

    job = call(send, "enqueue", "o-1", urgent=True)

    [message] = waiting(redis, namespace, "mail")
    assert (message.task, message.attempt, message.crashes, message.job_id) == ("send", 1, 0, "")
    assert arguments(message) == [["o-1"], {"urgent": True}]
    assert job.uid == str(uuid.UUID(bytes=message.uid))
    assert (job.queue, job.job_id, job.duplicate, job.conflict) == ("mail", None, False, None)
    assert abs(message.enqueued_at - time.time() * 1000) < 5000


def test_jobs_wait_in_the_order_in_which_they_came_and_their_uids_sort_the_same(app, redis, namespace):
    task = app.task(name="t")(lambda n: None)

    jobs = [task.enqueue(n) for n in range(50)]

    assert [arguments(message)[0] for message in waiting(redis, namespace)] == [[n] for n in range(50)]
    assert [job.uid for job in jobs] == sorted(job.uid for job in jobs)


def test_a_delayed_job_is_scheduled_that_long_after_now(app, call, redis, namespace):
    task = app.task(name="t")(lambda: None)

    call(task.using(delay=dt.timedelta(minutes=1)), "enqueue")

    [(due, message)] = scheduled(redis, namespace)
    assert due == message.due_ms == message.enqueued_at + 60_000
    assert not waiting(redis, namespace)


@pytest.mark.parametrize("zone", [dt.UTC, dt.timezone(dt.timedelta(hours=5, minutes=30))])
def test_a_job_with_a_time_is_scheduled_for_that_instant_whatever_its_zone(app, call, redis, namespace, zone):
    task = app.task(name="t")(lambda: None)
    at = dt.datetime.now(zone) + dt.timedelta(hours=1)

    call(task.using(at=at), "enqueue")

    [(due, message)] = scheduled(redis, namespace)
    assert due == message.due_ms == round(at.timestamp() * 1000)


def test_a_time_that_has_passed_means_at_once(app, call, redis, namespace):
    task = app.task(name="t")(lambda: None)

    call(task.using(at=dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1)), "enqueue")
    call(task.using(delay=0), "enqueue")

    assert [message.due_ms for message in waiting(redis, namespace)] == [None, None]


def test_the_callers_options_are_in_the_message(app, call, redis, namespace):
    task = app.task(name="t", expires=30, retention=60)(lambda: None)

    call(task, "enqueue")
    call(task.using(expires=None, retention=0, retries=7, timeout=5), "enqueue")
    call(task.using(retries=Backoff(2, delay=9, jitter=0), timeout=None, delay=100, expires=10), "enqueue")

    own, other = waiting(redis, namespace)
    assert (own.expires_ms, own.retention_ms, own.extras) == (own.enqueued_at + 30_000, 60_000, {})
    assert (other.expires_ms, other.retention_ms, other.extras) == (None, None, {"retries": 7, "timeout": 5.0})
    [(due, delayed)] = scheduled(redis, namespace)
    assert delayed.expires_ms == due + 10_000
    sent = {"retries": 2, "delay": 9.0, "factor": 2.0, "jitter": 0, "max_delay": 600.0}
    assert delayed.extras == {"retries": sent, "timeout": None}


def test_a_job_that_can_be_followed_is_marked_and_has_a_record(app, call, redis, namespace):
    call(app.task(name="plain")(lambda: None), "enqueue")
    call(app.task(name="kept", result_ttl=60)(lambda: None), "enqueue")
    call(app.task(name="tracked", track=True)(lambda: None), "enqueue")

    assert [message.tracked for message in waiting(redis, namespace)] == [False, True, True]
    assert len(list(redis.scan_iter(match=f"{namespace}:{{default}}:job:*"))) == 2


def test_a_queue_in_use_is_listed_in_the_namespace(app, call, redis, namespace):
    call(app.task(name="t", queue="mail")(lambda: None), "enqueue")

    assert redis.zrange(f"{namespace}:queues", 0, -1) == [b"mail"]


def test_a_queue_that_is_full_takes_no_more(new_app, redis, namespace):
    app = new_app(max_queue=3)
    task = app.task(name="t")(lambda n: None)
    for n in range(3):
        task.enqueue(n)

    with pytest.raises(QueueFull, match="max_queue is 3") as caught:
        task.enqueue(3)

    assert (caught.value.queue, caught.value.waiting) == ("default", 3)
    assert len(waiting(redis, namespace)) == 3


def test_arguments_larger_than_max_payload_are_refused(new_app, redis, namespace):
    app = new_app(max_payload=1000)
    task = app.task(name="t")(lambda text: None)

    task.enqueue("x" * 900)
    with pytest.raises(PayloadError, match="1000"):
        task.enqueue("x" * 1000)

    assert len(waiting(redis, namespace)) == 1


def test_with_validate_a_call_that_does_not_fit_its_annotations_is_refused(new_app, redis, namespace):
    app = new_app(validate=True)

    @app.task(name="t")
    def task(when: dt.date): ...

    task.enqueue(dt.date(2024, 1, 1))
    with pytest.raises(PayloadError, match="`when`: Invalid RFC3339 encoded date"):
        task.enqueue("tomorrow")

    assert len(waiting(redis, namespace)) == 1


def test_sync_enqueue_in_a_running_event_loop_works_and_warns_once(app, redis, namespace, caplog):
    task = app.task(name="t")(lambda n: None)

    async def main():
        for n in range(3):
            task.enqueue(n)
        task.enqueue_many([(3,)])

    with caplog.at_level(logging.WARNING, "fastq"):
        asyncio.run(main())

    assert len(waiting(redis, namespace)) == 4
    assert [record.getMessage() for record in caplog.records] == [
        "enqueue() was called in a running event loop, which it blocks: await aenqueue() there"
    ]


def test_a_closed_app_opens_a_new_connection_at_its_next_use(url, namespace, redis):
    with FastQ(url, namespace=namespace) as app:
        task = app.task(name="t")(lambda n: None)
        task.enqueue(1)
    task.enqueue(2)
    app.close()

    async def main():
        async with app:
            await task.aenqueue(3)
        await task.aenqueue(4)
        await app.aclose()

    asyncio.run(main())

    assert [arguments(message)[0] for message in waiting(redis, namespace)] == [[1], [2], [3], [4]]


def test_any_number_of_threads_share_an_app(app, redis, namespace):
    task = app.task(name="t")(lambda thread, n: None)
    go = threading.Barrier(8)

    def enqueue(thread):
        go.wait()
        for n in range(50):
            task.enqueue(thread, n)

    threads = [threading.Thread(target=enqueue, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found = [tuple(arguments(message)[0]) for message in waiting(redis, namespace)]
    assert sorted(found) == [(thread, n) for thread in range(8) for n in range(50)]


def test_event_loops_in_many_threads_share_an_app(app, redis, namespace):
    task = app.task(name="t")(lambda thread, n: None)

    async def main(thread):
        await asyncio.gather(*(task.aenqueue(thread, n) for n in range(50)))
        await app.aclose()

    threads = [threading.Thread(target=lambda thread=thread: asyncio.run(main(thread))) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found = [tuple(arguments(message)[0]) for message in waiting(redis, namespace)]
    assert sorted(found) == [(thread, n) for thread in range(4) for n in range(50)]


def test_a_forked_child_enqueues_beside_its_parent(app, redis, namespace):
    task = app.task(name="t")(lambda who, n: None)
    task.enqueue("before", 0)
    fork = multiprocessing.get_context("fork")

    def child(who):
        for n in range(50):
            task.enqueue(who, n)

    children = [fork.Process(target=child, args=(f"child {i}",)) for i in range(4)]
    for process in children:
        process.start()
    child("parent")
    for process in children:
        process.join()

    assert [process.exitcode for process in children] == [0] * 4
    found = [tuple(arguments(message)[0]) for message in waiting(redis, namespace)]
    assert sorted(found) == sorted(
        [("before", 0)] + [(who, n) for who in ("parent", *(f"child {i}" for i in range(4))) for n in range(50)]
    )
    assert len({message.uid for message in waiting(redis, namespace)}) == 251


def test_without_a_server_the_error_names_it_but_not_its_password(namespace):
    app = FastQ("redis://:s3cret@127.0.0.1:1/0", namespace=namespace, redis_options={"socket_connect_timeout": 0.2})
    task = app.task(name="t")(lambda: None)

    with pytest.raises(BrokerError, match=r"127\.0\.0\.1:1") as caught:
        task.enqueue()

    assert "s3cret" not in str(caught.value)
    assert not caught.value.maybe_enqueued


def test_an_enqueue_is_one_frame_of_one_job(app, redis, namespace):
    task = app.task(name="t")(lambda: None)

    task.enqueue()
    task.enqueue()

    assert [len(frame) for frame in frames(redis, namespace)] == [1, 1]
    assert encode_plain([[], {}]) == waiting(redis, namespace)[0].payload
