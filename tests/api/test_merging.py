"""Concurrent async enqueues share a call, and nothing else: each caller has its own outcome."""

import asyncio

import pytest

from fastq import BrokerError, DuplicateJobError, JobIDConflictError, PayloadError, QueueFull, Unique
from fastq.keys import queue_keys
from tests.support.proxy import Proxy
from tests.support.queues import arguments, frames, locks, scheduled, waiting

DAY = 86_400


def script_calls(redis):
    """How many scripts the server was asked to run so far."""
    stats = redis.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))


async def together(app, *awaitables):
    """The outcomes of calls that are made in one tick, on a connection that is there already."""
    try:
        return await asyncio.gather(*awaitables, return_exceptions=True)
    finally:
        await app.aclose()


@pytest.fixture
def add(app):
    return app.task(name="add")(lambda a: None)


@pytest.fixture
def send(app):
    return app.task(name="send", unique=Unique(DAY))(lambda a: None)


def test_calls_of_one_tick_share_script_calls_and_plain_ones_frames(app, add, redis, namespace):
    add.enqueue("first")  # loads the script and measures the clock
    before = script_calls(redis)

    jobs = asyncio.run(together(app, *(add.aenqueue(n) for n in range(100))))

    assert script_calls(redis) - before == 2  # each a frame at the most: while the server does one, the next is on its way
    assert [len(frame) for frame in frames(redis, namespace)] == [1, 64, 36]
    assert [arguments(message)[0] for message in waiting(redis, namespace)[1:]] == [[n] for n in range(100)]
    assert [job.raw_uid for job in jobs] == [message.uid for message in waiting(redis, namespace)[1:]]


def test_calls_of_several_queues_are_one_script_call_for_each(app, add, redis, namespace):
    add.enqueue("first")
    before = script_calls(redis)

    asyncio.run(together(app, *(add.using(queue=f"q{n % 3}").aenqueue(n) for n in range(30))))

    assert script_calls(redis) - before == 3
    assert [len(waiting(redis, namespace, f"q{n}")) for n in range(3)] == [10, 10, 10]


def test_many_calls_of_one_tick_keep_their_order(app, add, redis, namespace):
    add.enqueue("first")
    before = script_calls(redis)

    asyncio.run(together(app, *(add.aenqueue(n) for n in range(2_500))))

    assert script_calls(redis) - before == 40
    assert [arguments(message)[0] for message in waiting(redis, namespace)[1:]] == [[n] for n in range(2_500)]


@pytest.mark.parametrize("renew", [False, True])
def test_unique_calls_of_one_tick_share_frames_and_each_has_its_own_lock(app, add, redis, namespace, renew):
    send = app.task(name="send", unique=Unique(DAY, on_conflict="skip", renew=renew))(lambda a: None)
    add.enqueue("first")
    before = script_calls(redis)

    jobs = asyncio.run(together(app, *(send.aenqueue(n) for n in range(100))))

    assert script_calls(redis) - before == 2
    assert [len(frame) for frame in frames(redis, namespace)] == [1, 64, 36]
    messages = waiting(redis, namespace)[1:]
    assert [message.uid for message in messages] == [job.raw_uid for job in jobs]
    assert locks(redis, namespace) == {message.lock_key: message.uid for message in messages}
    assert all(0 < redis.pttl(key) <= DAY * 1000 for key in redis.scan_iter(match=f"{namespace}:*unique*"))


def test_locks_that_live_differently_long_keep_their_own_ttl_and_the_jobs_their_order(app, add, redis, namespace):
    short, long = (app.task(name=f"for-{ttl}", unique=Unique(ttl))(lambda a: None) for ttl in (1000, 2000))
    add.enqueue("first")
    before = script_calls(redis)

    calls = (add.aenqueue(0), short.aenqueue(1), short.aenqueue(2), long.aenqueue(3), add.aenqueue(4), short.aenqueue(5))
    jobs = asyncio.run(together(app, *calls))

    assert script_calls(redis) - before == 1
    assert [message.uid for message in waiting(redis, namespace)[1:]] == [job.raw_uid for job in jobs]
    ttls = {key.split(b":")[3]: redis.ttl(key) for key in redis.scan_iter(match=f"{namespace}:*unique*")}
    assert 900 < ttls[b"for-1000"] <= 1000 < 1900 < ttls[b"for-2000"] <= 2000
    assert len(list(redis.scan_iter(match=f"{namespace}:*unique*"))) == 4


def test_duplicates_among_the_calls_of_one_tick_are_told_which_one_got_in(app, add, send, redis, namespace):
    add.enqueue("first")

    outcomes = asyncio.run(together(app, *(send.aenqueue(n % 70) for n in range(100))))

    first, rest = outcomes[:70], outcomes[70:]
    assert [message.uid for message in waiting(redis, namespace)[1:]] == [job.raw_uid for job in first]
    assert all(isinstance(error, DuplicateJobError) for error in rest)
    assert [error.job_uid for error in rest] == [job.uid for job in first[:30]]


def test_jobs_of_every_kind_are_merged_and_each_caller_has_its_own_outcome(app, add, send, redis, namespace):
    add.using(job_id="taken").enqueue("first")
    holder = send.enqueue("held")
    before = script_calls(redis)

    outcomes = asyncio.run(
        together(
            app,
            add.aenqueue(1),
            send.aenqueue("held"),
            add.using(delay=60).aenqueue(2),
            add.using(job_id="taken").aenqueue(3),
            send.aenqueue("free"),
            send.aenqueue("free"),
            add.aenqueue(object()),
            add.aenqueue(4),
        )
    )

    assert script_calls(redis) - before == 1
    plain, duplicate, delayed, conflict, free, again, bad, last = outcomes
    assert isinstance(duplicate, DuplicateJobError)
    assert duplicate.job_uid == holder.uid
    assert isinstance(conflict, JobIDConflictError)
    assert isinstance(again, DuplicateJobError)
    assert again.job_uid == free.uid
    assert isinstance(bad, PayloadError)
    assert [message.uid for message in waiting(redis, namespace)[2:]] == [job.raw_uid for job in (plain, free, last)]
    assert [message.uid for _, message in scheduled(redis, namespace)] == [delayed.raw_uid]
    assert len(locks(redis, namespace)) == 2


def test_cancelling_a_caller_withdraws_only_its_wait(app, add, redis, namespace):
    add.enqueue("first")

    async def main():
        callers = [asyncio.create_task(add.aenqueue(n)) for n in range(10)]
        await asyncio.sleep(0)
        callers[3].cancel()
        return await together(app, *callers)

    outcomes = asyncio.run(main())

    assert isinstance(outcomes.pop(3), asyncio.CancelledError)
    found = {message.uid for message in waiting(redis, namespace)}
    assert {job.raw_uid for job in outcomes} < found
    assert len(found) == 11


def test_an_error_reaches_each_caller_as_its_own(new_app, redis, namespace):
    app = new_app(max_queue=3)
    add = app.task(name="add")(lambda a: None)
    add.enqueue("first")

    outcomes = asyncio.run(together(app, *(add.aenqueue(n) for n in range(5))))

    assert all(isinstance(outcome, QueueFull) for outcome in outcomes)
    assert len({id(outcome) for outcome in outcomes}) == 5
    assert {(outcome.queue, outcome.waiting) for outcome in outcomes} == {("default", 1)}
    assert len(waiting(redis, namespace)) == 1


# --- lost replies, alone and together


@pytest.fixture
def proxy(server):
    with Proxy(server) as proxy:
        yield proxy


def test_merged_calls_survive_a_lost_reply_and_are_in_once(new_app, proxy, redis, namespace):
    app = new_app(url=proxy.url)
    add = app.task(name="add")(lambda a: None)
    send = app.task(name="send", unique=Unique(DAY))(lambda a: None)
    add.enqueue("first")
    lost = proxy.on_request(b"EVALSHA", "lose_reply")

    outcomes = asyncio.run(together(app, *(task.aenqueue(n) for n in range(20) for task in (add, send))))

    assert lost.done.is_set()
    assert {job.raw_uid for job in outcomes} == {message.uid for message in waiting(redis, namespace)[1:]}
    assert len(waiting(redis, namespace)) == 41


@pytest.mark.parametrize("options", [{"unique": Unique(DAY)}, {"job_id": "x"}, {"unique": Unique(DAY), "delay": 60}])
def test_a_unique_enqueue_whose_reply_is_lost_is_repeated_and_is_in_once(
    new_app, proxy, redis, namespace, options
):
    app = new_app(url=proxy.url)
    add = app.task(name="add")(lambda a: None)
    add.enqueue("first")
    lost = proxy.on_request(b"EVALSHA", "lose_reply")

    job = add.using(**options).enqueue(1)

    assert lost.done.is_set()
    found = waiting(redis, namespace)[1:] + [message for _, message in scheduled(redis, namespace)]
    assert [message.uid for message in found] == [job.raw_uid]


def test_a_lone_plain_enqueue_whose_reply_is_lost_says_that_it_may_be_in_and_gives_the_handle(
    new_app, proxy, redis, namespace
):
    app = new_app(url=proxy.url)
    add = app.task(name="add")(lambda a: None)
    add.enqueue("first")
    proxy.on_request(b"EVALSHA", "lose_reply", times=2)

    with pytest.raises(BrokerError) as sync_lost:
        add.enqueue(1)
    [async_lost] = asyncio.run(together(app, add.aenqueue(2)))

    for error in (sync_lost.value, async_lost):
        assert isinstance(error, BrokerError)
        assert error.maybe_enqueued
    assert [message.uid for message in waiting(redis, namespace)[1:]] == [
        sync_lost.value.job.raw_uid,
        async_lost.job.raw_uid,
    ]


def test_a_retry_of_a_unique_enqueue_adds_nothing_even_when_the_job_has_ended_meanwhile(new_app, start_server, namespace):
    server = start_server()
    with Proxy(server) as proxy:
        app = new_app(url=proxy.url)
        add = app.task(name="add")(lambda a: None)
        add.enqueue("first")
        proxy.on_request(b"EVALSHA", "lose_reply", hook=proxy.refuse)
        with pytest.raises(BrokerError) as caught:
            add.using(unique=Unique(DAY)).enqueue(1)
        proxy.accept()
        client = server.client()
        for key in client.scan_iter(match="*:unique:*"):  # as its end would have done
            client.delete(key)
        client.delete(queue_keys(namespace, "default").stream)

        assert caught.value.retry() == caught.value.job

        async def main():
            try:
                return await caught.value.aretry()
            finally:
                await app.aclose()

        assert asyncio.run(main()) == caught.value.job
        assert waiting(client, namespace) == []


def test_a_unique_enqueue_of_which_nothing_was_heard_can_be_retried_from_its_error(new_app, start_server, namespace):
    server = start_server()
    with Proxy(server) as proxy:
        app = new_app(url=proxy.url)
        add = app.task(name="add")(lambda a: None)
        add.enqueue("first")
        proxy.on_request(b"EVALSHA", "lose_reply", hook=proxy.refuse)

        with pytest.raises(BrokerError) as caught:
            add.using(unique=Unique(DAY)).enqueue(1)  # it is in: the call was carried out, then nothing was heard
        proxy.accept()
        again = caught.value.retry()

        assert caught.value.maybe_enqueued
        assert again == caught.value.job
        client = server.client()
        assert [message.uid for message in waiting(client, namespace)[1:]] == [again.raw_uid]

        async def main():
            try:
                return await caught.value.aretry()
            finally:
                await app.aclose()

        assert asyncio.run(main()) == again
        assert len(waiting(client, namespace)) == 2
