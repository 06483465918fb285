"""Cancelled calls, slow, silent and restarted servers: each call ends in bounded time, with its own answer or a clear error."""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import redis as redis_py

from fastq import FastQ
from fastq.broker.broker import Broker
from fastq.broker.clients import AsyncClient
from fastq.broker.requests import Request
from fastq.broker.talk import ServerError
from fastq.errors import BrokerError
from fastq.keys import queue_keys
from tests.broker.conftest import echo
from tests.support import process
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.state import snapshot

MakeBroker = Callable[..., Broker]


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server) as proxy:
        yield proxy


def blocking(seconds: float) -> Request[object]:
    return Request(lambda reply: reply, commands=((b"BLPOP", b"nobody-pushes-here", seconds),), blocks=seconds)


# --- cancelled calls


def test_cancelled_calls_leave_every_other_call_its_own_reply(make_broker: MakeBroker, proxy: Proxy) -> None:
    """C34: a reply that nobody waits for any more must not become the next caller's."""
    broker = make_broker(proxy.url)
    chance = random.Random(7)

    async def ask(number: int) -> str:
        await asyncio.sleep(chance.uniform(0, 0.3))
        return await broker.acall(echo(str(number)))

    async def ask_and_leave(number: int) -> None:
        task = asyncio.create_task(ask(number))
        await asyncio.sleep(chance.uniform(0, 0.45))
        task.cancel()
        await asyncio.wait([task])

    async def all_of_them() -> list[str]:
        await broker.acall(echo("connected"))
        proxy.delay = 0.002
        kept = [asyncio.create_task(ask(number)) for number in range(200)]
        left = [asyncio.create_task(ask_and_leave(-number)) for number in range(200)]
        async with asyncio.timeout(20):
            found = [await task for task in kept]
            await asyncio.gather(*left)
        await broker.aclose()
        return found

    assert asyncio.run(all_of_them()) == [str(number) for number in range(200)]
    assert proxy.connections == 1


def test_a_call_that_is_cancelled_while_it_connects_disturbs_nobody(make_broker: MakeBroker, proxy: Proxy) -> None:
    broker = make_broker(proxy.url)
    proxy.delay = 0.05

    async def ask() -> str:
        first = asyncio.create_task(broker.acall(echo("first")))
        second = asyncio.create_task(broker.acall(echo("second")))
        await asyncio.sleep(0.03)
        first.cancel()
        found = await second
        await broker.aclose()
        return found

    assert asyncio.run(ask()) == "second"


def test_cancelled_enqueues_are_in_or_not_and_others_are_not_harmed(proxy: Proxy, namespace: str, redis: redis_py.Redis) -> None:
    app = FastQ(proxy.url, namespace=namespace)
    chance = random.Random(8)

    async def enqueue_and_leave(number: int) -> None:
        task = asyncio.create_task(app.aenqueue("t", -number))
        await asyncio.sleep(chance.uniform(0, 0.02))
        task.cancel()
        await asyncio.wait([task])

    async def all_of_them() -> set[str]:
        await app.aenqueue("t", 0)
        proxy.delay = 0.005
        kept = [asyncio.create_task(app.aenqueue("t", number)) for number in range(100)]
        await asyncio.gather(*(enqueue_and_leave(number) for number in range(100)))
        jobs = [await task for task in kept]
        await app.aclose()
        return {job.uid.replace("-", "") for job in jobs}

    kept = asyncio.run(all_of_them())
    waiting = [word for entry in snapshot(redis, queue_keys(namespace, "default"))["stream"] for word in entry.split()]
    assert len(kept) == 100
    assert kept <= set(waiting)
    assert len(waiting) == len(set(waiting)) <= 201


# --- silence


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_connection_that_died_silently_is_noticed_in_bounded_time(make_broker: MakeBroker, proxy: Proxy, kind: str) -> None:
    """C37. Nothing comes back, and nobody closes."""
    broker = make_broker(proxy.url)
    with Caller(broker, kind, timeout=0.4, patience=1.0) as caller:
        caller.call(echo("connected"))
        proxy.black_hole()
        began = time.monotonic()

        with pytest.raises(BrokerError, match="did not answer in time; the call may or may not") as error:
            caller.call(echo("once", repeatable=False))

    assert 0.3 < time.monotonic() - began < 3
    assert error.value.maybe_enqueued


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_call_that_can_be_repeated_outlives_a_connection_that_died_silently(
    make_broker: MakeBroker, proxy: Proxy, kind: str
) -> None:
    broker = make_broker(proxy.url)
    with Caller(broker, kind, timeout=0.4, patience=8.0) as caller:
        caller.call(echo("connected"))
        before = proxy.connections
        proxy.on_request(b"again", "black_hole", hook=lambda: flow_after_reconnect(proxy, before))

        assert caller.call(echo("again")) == "again"


def flow_after_reconnect(proxy: Proxy, before: int) -> None:
    def wait() -> None:
        process.wait_until(lambda: proxy.connections > before)
        proxy.flow()

    threading.Thread(target=wait, daemon=True).start()


class Caller:
    """Calls on a client of its own, a blocking one or one of an event loop."""

    def __init__(self, broker: Broker, kind: str, *, timeout: float, patience: float) -> None:
        self._runner = asyncio.Runner() if kind == "async" else None
        self._sync = broker.new_sync_client(timeout, patience)
        self._new_async = lambda: broker.new_client(timeout, patience)
        self._async: AsyncClient | None = None

    def call(self, request: Request[str]) -> str:
        return self._runner.run(self._acall(request)) if self._runner else self._sync.call(request)

    async def _acall(self, request: Request[str]) -> str:
        self._async = self._async or self._new_async()
        return await self._async.call(request)

    async def _close(self) -> None:
        if self._async is not None:
            self._async.close()

    def __enter__(self) -> "Caller":
        return self

    def __exit__(self, *exc: object) -> None:
        self._sync.close()
        if self._runner is not None:
            self._runner.run(self._close())
            self._runner.close()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_call_that_blocks_on_purpose_is_not_taken_for_dead(broker: Broker, kind: str) -> None:
    """C36: a blocking read may last longer than the timeout of a call."""

    async def ask() -> object:
        client = broker.new_client(timeout=0.3, patience=1.0)
        try:
            return await client.call(blocking(1.0))
        finally:
            client.close()

    if kind == "async":
        assert asyncio.run(ask()) is None
    else:
        client = broker.new_sync_client(0.3, 1.0)
        assert client.call(blocking(1.0)) is None
        client.close()


def test_a_connection_that_ends_while_it_is_handed_over_is_noticed_at_once(
    make_broker: MakeBroker, url: str, redis: redis_py.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end has been told to the one that made the connection: nobody else would hear of it before the timeout."""
    broker = make_broker(url)
    open_as_usual = broker.opener.aopen
    killed: list[int] = []

    async def end_the_first() -> object:
        connection = await open_as_usual()
        if not killed:
            await connection.send_command("CLIENT", "ID")
            killed.append(await connection.read_response())
            redis.client_kill_filter(_id=killed[0])
            while not connection._reader.at_eof():
                await asyncio.sleep(0.001)
        return connection

    monkeypatch.setattr(broker.opener, "aopen", end_the_first)

    async def ask() -> str:
        client = broker.new_client(timeout=600.0, patience=30.0)
        try:
            async with asyncio.timeout(60):
                return await client.call(echo("heard"))
        finally:
            client.close()

    assert asyncio.run(ask()) == "heard"
    assert killed


# --- restarts


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_idle_program_does_not_notice_a_restart_of_the_server(own_server: Server, namespace: str, kind: str) -> None:
    """C30. Not even a lone plain enqueue, which must not be repeated, meets the connection that was closed meanwhile."""
    app = FastQ(own_server.url, namespace=namespace)

    async def through_a_restart() -> None:
        async with app:
            await app.aenqueue("t", 1)
            own_server.kill()
            own_server.restart()
            await asyncio.sleep(0)  # the loop hears that its connection is gone
            await app.aenqueue("t", 2)

    if kind == "async":
        asyncio.run(through_a_restart())
    else:
        app.enqueue("t", 1)
        own_server.kill()
        own_server.restart()
        app.enqueue("t", 2)
    app.close()

    assert len(snapshot(own_server.client(), queue_keys(namespace, "default"))["stream"]) == 2


def test_scripts_are_loaded_again_in_the_middle_of_a_pipeline(url: str, namespace: str, redis: redis_py.Redis) -> None:
    """C29: many calls are on their way when the server loses its scripts."""
    app = FastQ(url, namespace=namespace)

    async def enqueue_all() -> None:
        async with app:
            await app.aenqueue("t", -1)
            for _ in range(5):
                redis.script_flush()
                await asyncio.gather(*(app.using(queue=f"q{i}").aenqueue("t", i) for i in range(20)))

    asyncio.run(enqueue_all())

    counted = [snapshot(redis, queue_keys(namespace, f"q{i}"))["stats"]["enqueued"] for i in range(20)]
    assert counted == [5] * 20


def test_an_error_of_the_server_is_told_with_what_to_do(broker: Broker, redis: redis_py.Redis, namespace: str) -> None:
    redis.set(f"{namespace}:text", "x")

    with pytest.raises(ServerError, match=r"shared with another program\? \(redis://127.0.0.1.* said: WRONGTYPE") as error:
        broker.call(Request(bool, commands=((b"LPUSH", f"{namespace}:text", b"x"),)))

    assert error.value.code == "WRONGTYPE"
    assert not error.value.maybe_enqueued


def test_a_call_that_fails_on_the_server_is_not_made_twice(url: str, namespace: str, redis: redis_py.Redis) -> None:
    """A script that ends with an error may have written something already."""
    keys = queue_keys(namespace, "default")
    with FastQ(url, namespace=namespace) as app:
        app.enqueue("t", 1)
        redis.delete(keys.stats)
        redis.set(keys.stats, "something else")

        with pytest.raises(ServerError):
            app.enqueue("t", 2)

    assert redis.xlen(keys.stream) == 2


def test_a_server_that_is_busy_with_a_script_is_waited_for(own_server: Server, make_broker: MakeBroker) -> None:
    """C33: BUSY."""
    client = own_server.client()
    client.config_set("busy-reply-threshold", 50)
    broker = make_broker(own_server.url)
    broker.call(echo("connected"))
    loop = "local t = redis.call('TIME') while true do local n = redis.call('TIME') if n[1] - t[1] > 1 then return 1 end end"
    busy = threading.Thread(target=client.eval, args=(loop, 0))
    busy.start()
    process.wait_until(lambda: is_busy(own_server))

    assert broker.call(echo("a")) == "a"
    busy.join()


def is_busy(server: Server) -> bool:
    try:
        server.client().get("x")
    except redis_py.ResponseError as error:
        return "BUSY" in str(error) or "busy" in str(error).lower()
    return False
