"""One broker serves threads, forked children and any number of event loops; nobody gets another's reply."""

import asyncio
import gc
import itertools
import os
import signal
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis as redis_py

from fastq import FastQ
from fastq.broker.broker import Broker
from fastq.keys import queue_keys
from tests.broker.conftest import echo
from tests.support import process
from tests.support.state import snapshot

CHILDREN, JOBS = 8, 40


def in_child(body: Callable[[], None]) -> int:
    """Fork; the child runs `body` and ends with 0, or with 1 after an exception. Its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        body()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def test_forked_children_and_their_parent_enqueue_at_once(url: str, namespace: str, redis: redis_py.Redis) -> None:
    """C35: a child that used its parent's sockets would read the parent's replies."""
    app = FastQ(url, namespace=namespace)

    @app.task(name="t")
    def task(tag: str) -> None: ...

    def enqueue(name: str) -> None:
        for i in range(JOBS):
            task.enqueue(f"{name}-{i}")
            assert app.broker.call(echo(f"{name}-{i}")) == f"{name}-{i}"

    task.enqueue("before-0")  # connected before the fork
    asyncio.run(prepare_loop(app))
    children = [in_child(lambda number=number: enqueue(f"child{number}")) for number in range(CHILDREN)]  # type: ignore[misc]
    enqueue("parent")

    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * CHILDREN
    state = snapshot(redis, queue_keys(namespace, "default"))
    assert state["stats"]["enqueued"] == 1 + (CHILDREN + 1) * JOBS
    assert len(set(state["stream"])) == len(state["stream"]) == 1 + (CHILDREN + 1) * JOBS  # no uid twice
    enqueue("parent again")
    app.close()


async def prepare_loop(app: FastQ) -> None:
    await app.broker.acall(echo("a"))
    await app.aclose()


def test_a_child_that_is_forked_in_the_middle_of_a_bulk_does_not_disturb_it(
    url: str, namespace: str, redis: redis_py.Redis
) -> None:
    app = FastQ(url, namespace=namespace)

    @app.task(name="t")
    def task(number: int) -> None: ...

    def items() -> object:
        for i in range(5000):
            if i == 2500:
                pid = in_child(lambda: (task.enqueue(-1), None)[1])
                assert os.waitpid(pid, 0)[1] == 0
            yield (i,)

    result = task.enqueue_many(items())  # type: ignore[arg-type]

    assert result.enqueued == 5000
    assert snapshot(redis, queue_keys(namespace, "default"))["stats"]["enqueued"] == 5001
    app.close()


def test_a_child_that_is_forked_inside_a_running_loop_uses_connections_of_its_own(broker: Broker) -> None:
    async def parent() -> None:
        await broker.acall(echo("before"))
        pid = in_child(lambda: assert_equal(broker.call(echo("child")), "child"))
        assert await broker.acall(echo("after")) == "after"
        assert os.waitpid(pid, 0)[1] == 0
        assert await broker.acall(echo("last")) == "last"
        await broker.aclose()

    asyncio.run(parent())


def assert_equal(found: str, expected: str) -> None:
    assert found == expected


def test_a_spawned_process_imports_and_enqueues(url: str, namespace: str, redis: redis_py.Redis) -> None:
    body = """
from fastq import FastQ
app = FastQ(sys.argv[1], namespace=sys.argv[2])
for i in range(20):
    app.enqueue("t", i)
"""
    children = [process.script(body, url, namespace) for _ in range(2)]

    assert [(child.wait(), child.stderr) for child in children] == [(0, ""), (0, "")]
    assert snapshot(redis, queue_keys(namespace, "default"))["stats"]["enqueued"] == 40


def test_threads_get_their_own_replies(broker: Broker) -> None:
    def ask(number: int) -> None:
        for i in range(100):
            assert broker.call(echo(f"{number}-{i}")) == f"{number}-{i}"

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))


def test_calls_that_were_begun_in_any_order_get_their_own_replies(broker: Broker) -> None:
    begun = [broker.begin(echo(str(i))) for i in range(20)]

    assert [pending.wait() for pending in reversed(begun)] == [str(i) for i in reversed(range(20))]


def test_connections_are_used_again(broker: Broker, redis: redis_py.Redis) -> None:
    before = redis.info("stats")["total_connections_received"]
    for i in range(50):
        broker.call(echo(str(i)))

    assert redis.info("stats")["total_connections_received"] - before == 1


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_call_leaves_no_reply_for_the_next(broker: Broker) -> None:
    """Ctrl-C while a reply is on its way: the connection is out of step and must not be used again."""

    class Interrupt(BaseException):
        pass

    numbers, came, rose = itertools.count(), 0, 0

    def interrupt(*_: object) -> None:
        nonlocal came
        came += 1
        raise Interrupt

    broker.call(echo("connected"))
    handler, timer = signal.signal(signal.SIGALRM, interrupt), signal.getitimer(signal.ITIMER_REAL)
    try:
        for number in range(1, 61):
            signal.setitimer(signal.ITIMER_REAL, 0.0001 * (number % 10 + 1))
            try:
                while came < number:  # one that comes within a finaliser never rises
                    text = f"{number}-{next(numbers)}"
                    assert broker.call(echo(text)) == text
            except Interrupt:
                rose += 1
    finally:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *timer)  # the time limit of this test
    assert broker.call(echo("last")) == "last"
    assert rose > 30
    gc.collect()  # sockets that were being made when the interrupt came


def test_event_loops_in_threads_have_connections_of_their_own(broker: Broker) -> None:
    together = threading.Barrier(3, timeout=10)

    async def ask(number: int) -> None:
        for i in range(50):
            assert await broker.acall(echo(f"{number}-{i}")) == f"{number}-{i}"
        together.wait()
        await broker.aclose()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda number: asyncio.run(ask(number)), range(3)))


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_loops_that_end_without_closing_do_not_pile_up(broker: Broker, redis: redis_py.Redis) -> None:
    async def ask() -> None:
        await broker.acall(echo("a"))

    def connections() -> int:
        gc.collect()
        return len(redis.client_list())

    asyncio.run(ask())
    before = connections()
    for _ in range(20):
        asyncio.run(ask())

    process.wait_until(lambda: connections() <= before + 1, timeout=5)
    broker._forget_closed_loops()  # the last one too, while its warning is expected
    gc.collect()
