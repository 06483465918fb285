"""Code around enqueues and runs."""

import asyncio
from contextvars import ContextVar

import pytest

from fastq import ConfigError, FastQ, Middleware, OutgoingCall, current_job
from fastq.codec import Message
from fastq.keys import queue_keys

tenant: ContextVar[str] = ContextVar("tenant", default="")


class Tenants(Middleware):
    def enqueue(self, call: OutgoingCall) -> None:
        call.headers["tenant"] = tenant.get()

    async def run(self, job, call_next):
        tenant.set(job.headers["tenant"])
        return await call_next()


@pytest.fixture
def app(url, namespace):
    with FastQ(url, namespace=namespace, lease=2) as app:
        yield app


def test_what_middleware_puts_into_headers_reaches_the_job_async_and_sync(app):
    app.middleware(Tenants)
    seen = []

    @app.task
    async def on_the_loop():
        seen.append(("async", tenant.get(), current_job().headers))

    @app.task
    def in_a_thread():
        seen.append(("sync", tenant.get(), current_job().headers))

    token = tenant.set("blue")
    on_the_loop.enqueue()
    in_a_thread.enqueue()
    tenant.reset(token)
    app.worker(burst=True).run()

    headers = {"tenant": "blue"}
    assert sorted(seen, key=lambda entry: entry[0]) == [("async", "blue", headers), ("sync", "blue", headers)]


def test_layers_are_entered_in_the_order_in_which_they_were_registered(app):
    order = []

    def layer(name):
        @app.middleware
        async def around(job, call_next):
            order.append(f"{name} in")
            result = await call_next()
            order.append(f"{name} out")
            return result

    layer("first")
    layer("second")

    @app.task
    async def work():
        order.append("work")

    work.enqueue()
    app.worker(burst=True).run()

    assert order == ["first in", "second in", "work", "second out", "first out"]


def test_what_a_layer_raises_counts_as_raised_by_the_task_and_what_it_returns_is_the_result(app):
    @app.middleware
    async def judge(job, call_next):
        result = await call_next()
        if result == "bad":
            raise ValueError("not good enough")
        return result.upper()

    @app.task(retries=0, result_ttl=60)
    async def say(word: str) -> str:
        return word

    good, bad = say.enqueue("good"), say.enqueue("bad")
    app.worker(burst=True).run()

    assert good.result(timeout=5) == "GOOD"
    assert bad.status() == "dead"


def test_every_way_of_enqueueing_passes_the_middleware(app, redis):
    app.middleware(Tenants())

    @app.task
    async def work(number: int):
        pass

    async def enqueue_async():
        await work.aenqueue(4)
        await work.aenqueue_many([(5,)])
        await app.aclose()

    tenant.set("green")
    work.enqueue(1)
    work.enqueue_many([(2,), (3,)])
    asyncio.run(enqueue_async())
    app.enqueue(work.name, number=6)
    work.using(delay=60).enqueue(7)

    keys = queue_keys(app.config.namespace, "default")
    frames = [fields[b"f"] for _, fields in redis.xrange(keys.stream)] + redis.hvals(keys.jobs)
    messages = []
    for frame in frames:
        while frame:
            size = int.from_bytes(frame[:4], "little") + 4
            messages.append(Message(frame[:size]))
            frame = frame[size:]
    assert [message.extras["headers"] for message in messages] == [{"tenant": "green"}] * 7


def test_a_middleware_that_refuses_an_enqueue_leaves_nothing_behind(app, redis):
    @app.middleware
    class Refuse(Middleware):
        def enqueue(self, call):
            raise PermissionError("not you")

    @app.task
    async def work():
        pass

    with pytest.raises(PermissionError, match="not you"):
        work.enqueue()

    assert redis.xlen(queue_keys(app.config.namespace, "default").stream) == 0


def test_what_is_no_middleware_is_refused(app):
    with pytest.raises(ConfigError, match="is no middleware"):
        app.middleware("timing")
