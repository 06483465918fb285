"""Bulk enqueues: every item has its own outcome, any number is streamed, and an early end tells what is in."""

import itertools

import pytest

from fastq import BrokerError, BulkError, ConfigError, PayloadError, QueueFull, Unique
from tests.support.proxy import Proxy
from tests.support.queues import arguments, frames, ids, locks, scheduled, waiting

DAY = 86_400


@pytest.fixture
def add(app):
    @app.task(name="add")
    def add(a, b=2): ...

    return add


@pytest.fixture
def send(app):
    @app.task(name="send", unique=Unique(ttl=DAY))
    def send(order_id: str, template: str = "receipt"): ...

    return send


def uids(result):
    return [job.raw_uid for job in result]


def test_items_are_tuples_dicts_and_prepared_calls(app, add, send, call, redis, namespace):
    items = [(1,), {"a": 3, "b": 4}, add.prepare(5, b=6), send.using(queue="mail").prepare("o-1"), (7, 8)]

    result = call(add, "enqueue_many", items)

    assert (result.enqueued, len(result)) == (5, 5)
    assert [arguments(message) for message in waiting(redis, namespace)] == [
        [[1], {}], [[], {"a": 3, "b": 4}], [[5], {"b": 6}], [[7, 8], {}],
    ]  # fmt: skip
    [mail] = waiting(redis, namespace, "mail")
    assert [job.queue for job in result] == ["default", "default", "default", "mail", "default"]
    order = [*waiting(redis, namespace)[:3], mail, waiting(redis, namespace)[3]]
    assert uids(result) == [message.uid for message in order]


def test_an_empty_bulk_is_fine(app, add, call):
    assert call(add, "enqueue_many", []).enqueued == 0
    assert call(app, "enqueue_many", []).enqueued == 0


def test_jobs_share_frames_of_at_most_64(add, call, redis, namespace):
    result = call(add, "enqueue_many", ((n,) for n in range(2_300)))

    assert result.enqueued == 2_300
    sizes = [len(frame) for frame in frames(redis, namespace)]
    assert sum(sizes) == 2_300
    assert max(sizes) == 64
    assert len(sizes) < 2_300 / 64 + 4
    assert [arguments(message)[0][0] for message in waiting(redis, namespace)] == list(range(2_300))
    assert uids(result) == [message.uid for message in waiting(redis, namespace)]


def test_handles_can_be_had_again_by_place_and_by_slice(add, redis, namespace):
    result = add.enqueue_many((n,) for n in range(10))

    assert result[-1] == result[9]
    assert [job.raw_uid for job in result[2:8:2]] == [message.uid for message in waiting(redis, namespace)][2:8:2]
    with pytest.raises(IndexError):
        result[10]


def test_without_handles_only_the_counts_are_kept(add, call, redis, namespace):
    result = call(add, "enqueue_many", ((n,) for n in range(100)), handles=False)

    assert (result.enqueued, len(result)) == (100, 0)
    assert len(waiting(redis, namespace)) == 100


def test_duplicates_are_counted_and_named_and_never_raised_also_within_the_bulk(send, call, redis, namespace):
    first = call(send, "enqueue", "o-2")

    result = call(send, "enqueue_many", [("o-1",), ("o-2",), ("o-1", "receipt"), {"order_id": "o-3"}])

    assert (result.enqueued, result.duplicate_count, result.conflict_count) == (2, 2, 0)
    assert [(found.index, found.job_uid) for found in result.duplicates] == [(1, first.uid), (2, result[0].uid)]
    assert all(DAY - 60 < found.expires_in <= DAY for found in result.duplicates)
    assert [job.duplicate for job in result] == [False, True, True, False]
    assert result[1] == first
    assert len(waiting(redis, namespace)) == len(locks(redis, namespace)) == 3


def test_a_bulk_of_many_duplicates_names_the_first_10_000_and_counts_all(send, call, redis, namespace):
    holder = call(send, "enqueue", "o-1")

    result = call(send, "enqueue_many", itertools.repeat(("o-1",), 10_500))

    assert (result.enqueued, result.duplicate_count, len(result.duplicates)) == (0, 10_500, 10_000)
    assert (result[10_499].uid, result.duplicates[-1].index) == (holder.uid, 9_999)


def test_conflicts_of_ids_are_counted_and_named(app, add, call, redis, namespace):
    calls = [add.using(job_id=name).prepare(1) for name in ("x", "y", "x")]

    result = call(app, "enqueue_many", calls)

    assert (result.enqueued, result.duplicate_count, result.conflict_count) == (2, 0, 1)
    assert [(found.index, found.job_uid) for found in result.conflicts] == [(2, result[0].uid)]
    assert [job.job_id for job in result] == ["x", "y", "x"]
    assert set(ids(redis, namespace)) == {b"x", b"y"}


def test_tasks_queues_and_options_can_be_mixed(app, add, send, call, redis, namespace):
    kinds = [add, send, add.using(queue="other"), send.using(queue="other", delay=60), add.using(job_id="x")]
    calls = [kind.prepare(str(n)) for n in range(300) for kind in kinds]

    result = call(app, "enqueue_many", calls)

    assert (result.enqueued, result.duplicate_count, result.conflict_count) == (300 * 4 + 1, 0, 299)
    assert len(waiting(redis, namespace)) == 601
    assert len(waiting(redis, namespace, "other")) == len(scheduled(redis, namespace, "other")) == 300
    assert [job.queue for job in result[:5]] == ["default", "default", "other", "other", "default"]
    by_uid = {message.uid: message for queue in ("default", "other") for message in waiting(redis, namespace, queue)}
    for index in range(0, 1500, 5):
        for job in result[index : index + 3]:
            assert arguments(by_uid[job.raw_uid])[0] == [str(index // 5)]


def test_options_of_the_task_hold_for_each_item(add, call, redis, namespace):
    call(add.using(delay=60, expires=5), "enqueue_many", ((n,) for n in range(5)))
    call(add.using(expires=5, retention=7), "enqueue_many", ((n,) for n in range(5)))

    assert [message.expires_ms - due for due, message in scheduled(redis, namespace)] == [5_000] * 5
    assert [message.retention_ms for message in waiting(redis, namespace)] == [7_000] * 5


def test_annotated_arguments_are_encoded_in_bulk_as_alone(app, call, redis, namespace):
    @app.task(name="t")
    def task(days: set[int], *rest: set[int]): ...

    call(task, "enqueue_many", [({1},), ({2}, {3})])

    assert [arguments(message)[0] for message in waiting(redis, namespace)] == [[[1]], [[2], [3]]]


def test_a_job_id_for_a_whole_bulk_is_refused(add, call):
    with pytest.raises(ConfigError, match="one job"):
        call(add.using(job_id="x"), "enqueue_many", [(1,)])


@pytest.mark.parametrize("item", [[1], "text", 5, None, {1: 2}, {"a": 1, 2: 3}, type("Pair", (tuple,), {})((1, 2))])
@pytest.mark.parametrize("before", [0, 3, 1_100])
def test_an_item_that_is_none_ends_the_bulk_and_all_before_it_are_in(add, call, redis, namespace, item, before):
    items = itertools.chain(((n,) for n in range(before)), [item], ((n,) for n in range(5)))

    with pytest.raises(BulkError, match=rf"ended at item {before}.*\(x,\)") as caught:
        call(add, "enqueue_many", items)

    error = caught.value
    assert isinstance(error.__cause__, PayloadError)
    assert (error.index, list(error.uncertain), error.result.enqueued) == (before, [], before)
    assert uids(error.result) == [message.uid for message in waiting(redis, namespace)]
    assert len(error.result) == before


def test_a_call_that_cannot_be_encoded_ends_the_bulk_by_its_parameter(add, send, call, redis, namespace):
    for task in (add, send):
        with pytest.raises(BulkError, match=r"\[1\]") as caught:
            call(task, "enqueue_many", [("1",), ([1, object()],), ("2",)])
        assert (caught.value.index, caught.value.result.enqueued) == (1, 1)

    assert len(waiting(redis, namespace)) == 2


def test_a_bulk_of_the_app_takes_prepared_calls_only(app, add, call, redis, namespace):
    with pytest.raises(BulkError, match="give prepared calls") as caught:
        call(app, "enqueue_many", [add.prepare(1), (2,)])

    assert (caught.value.index, len(waiting(redis, namespace))) == (1, 1)


def test_an_iterable_that_fails_ends_the_bulk_and_all_before_it_are_in(add, call, redis, namespace):
    def items():
        yield from ((n,) for n in range(1_500))
        raise OSError("the file ended")

    with pytest.raises(BulkError, match="the file ended") as caught:
        call(add, "enqueue_many", items())

    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.index == caught.value.result.enqueued == len(waiting(redis, namespace)) == 1_500


def test_a_full_queue_ends_the_bulk(new_app, redis, namespace):
    add = new_app(max_queue=1_500).task(name="add")(lambda a: None)

    with pytest.raises(BulkError) as caught:
        add.enqueue_many((n,) for n in range(3_000))

    assert isinstance(caught.value.__cause__, QueueFull)
    assert (caught.value.index, caught.value.result.enqueued, list(caught.value.uncertain)) == (1_000, 1_000, [])
    assert len(waiting(redis, namespace)) == len(caught.value.result) == 1_000


def test_async_iterables_are_streamed_too(app, add, redis, namespace):
    import asyncio

    async def items(count, fail=False):
        for n in range(count):
            yield (n,)
        if fail:
            raise OSError("the socket closed")

    async def main():
        result = await add.aenqueue_many(items(2_300))
        with pytest.raises(BulkError, match="the socket closed") as caught:
            await add.aenqueue_many(items(1_200, fail=True))
        mixed = await app.aenqueue_many(call async for call in prepared())
        await app.aclose()
        return result, caught.value, mixed

    async def prepared():
        for n in range(10):
            yield add.using(queue=f"q{n % 2}").prepare(n)

    result, error, mixed = asyncio.run(main())

    assert (result.enqueued, error.index, mixed.enqueued) == (2_300, 1_200, 10)
    assert len(waiting(redis, namespace)) == 3_500
    assert [arguments(message)[0][0] for message in waiting(redis, namespace)][:2_300] == list(range(2_300))


# --- a lost connection


@pytest.fixture
def proxy(server):
    with Proxy(server) as proxy:
        yield proxy


def test_a_lost_reply_is_asked_for_again_and_every_job_is_in_once(new_app, proxy, redis, namespace):
    app = new_app(url=proxy.url)
    add = app.task(name="add")(lambda a: None)
    send = app.task(name="send", unique=Unique(DAY))(lambda a: None)
    app.enqueue("warm-up", 0)
    faults = [proxy.on_request(b"EVALSHA", "lose_reply", nth=n) for n in (2, 4, 7)]

    plain = add.enqueue_many((n,) for n in range(3_500))
    unique = send.enqueue_many((n % 1_000,) for n in range(1_500))

    assert all(fault.done.is_set() for fault in faults)
    assert (plain.enqueued, unique.enqueued, unique.duplicate_count) == (3_500, 1_000, 500)
    messages = waiting(redis, namespace)
    assert len(messages) == len({message.uid for message in messages}) == 1 + 4_500
    assert {message.uid for message in messages if message.task == "add"} == set(uids(plain))


def test_a_connection_that_stays_lost_ends_the_bulk_with_what_is_in_and_what_may_be(
    new_app, start_server, namespace
):
    server = start_server()
    with Proxy(server) as proxy:
        app = new_app(url=proxy.url)
        add = app.task(name="add")(lambda a: None)
        add.enqueue(0)
        lost = proxy.on_request(b"EVALSHA", "lose_reply", nth=3, hook=proxy.refuse)

        with pytest.raises(BulkError) as caught:
            add.enqueue_many((n,) for n in range(10_000))

        error = caught.value
        assert lost.done.is_set()
        assert isinstance(error.__cause__, BrokerError)
        assert (error.index, error.result.enqueued, len(error.result)) == (2_000, 2_000, 2_000)
        assert error.uncertain == range(2_000, 3_000)
        client = server.client()
        certain = {message.uid for message in waiting(client, namespace)[1:2_001]}
        assert certain == set(uids(error.result))
