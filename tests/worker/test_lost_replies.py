"""A connection that breaks at any point of a job's way: nothing is lost, and nothing happens twice.

Each point is cut before the request went through, after it (the reply is lost) and in the middle of the reply.
"""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest
import redis as redis_py

from fastq.broker.scripts import load
from fastq.errors import BrokerError
from tests.support.proxy import Action, Proxy
from tests.support.servers import Server
from tests.worker.conftest import Bench

SCRIPTS = ("enqueue", "join", "beat", "start", "settle", "tick", "leave")
CUTS: list[Action] = ["lose_request", "lose_reply", "tear_reply"]


def calls(script: str) -> Callable[[bytes], bool]:
    """Matches calls of a script, by its sha or by its source."""
    wanted = load(script)
    return lambda request: wanted.sha in request or wanted.source in request


def reads(request: bytes) -> bool:
    return b"XREADGROUP" in request and b"BLOCK" not in request


def after(seconds: float, match: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
    """Matches only from then on."""
    begins = time.monotonic() + seconds
    return lambda request: time.monotonic() > begins and match(request)


def waits(request: bytes) -> bool:
    return b"XREADGROUP" in request and b"BLOCK" in request


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server) as proxy:
        yield proxy


@pytest.fixture
def through(proxy: Proxy, redis: redis_py.Redis, bench_on: Callable[..., Bench]) -> Bench:
    """A Bench whose own calls and workers go through the proxy; the server has all scripts already."""
    for script in SCRIPTS:
        redis.script_load(load(script).source)
    return bench_on(proxy.url, redis)


POINTS = {
    "join": (calls("join"), 1),
    "read": (reads, 1),
    "read, later": (reads, 3),
    "start": (calls("start"), 1),
    "settle": (calls("settle"), 1),
    "settle, later": (calls("settle"), 4),
    "tick": (calls("tick"), 1),
    "tick that promotes": (calls("tick"), 1),
    "leave": (calls("leave"), 1),
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("point", POINTS)
def test_a_worker_loses_and_repeats_nothing(bench: Bench, through: Bench, proxy: Proxy, point: str, cut: Action) -> None:
    keys = [f"j{i}" for i in range(30)]
    for key in keys[:10]:
        bench.task["note"].enqueue(key)
    bench.task["single"].enqueue_many([(key, 0.01) for key in keys[10:15]])
    bench.task["at_start"].enqueue_many([(key, 0.01) for key in keys[15:20]])
    bench.task["fail"].enqueue_many([(key, 1) for key in keys[20:25]])
    for key in keys[25:]:
        bench.task["note"].using(delay=0.4).enqueue(key)
    match, nth = POINTS[point]
    if point == "tick that promotes":
        match = after(0.4, match)
    fault = proxy.on_request(match, cut, nth=nth)

    through.burst(concurrency=5)

    assert fault.done.is_set(), f"only {fault.seen} such calls"
    expected = {key: 2 if key in keys[20:25] else 1 for key in keys}
    assert through.ledger.read().starts == expected
    state = bench.state()
    counters = state.pop("stats")
    assert (counters["succeeded"], counters["failed"], counters.get("locks_lost", 0)) == (30, 5, 0)
    # A worker whose last call was lost has left all the same.
    assert set(state) <= {"lanes", "watch"}


@pytest.mark.parametrize("cut", CUTS)
def test_a_wait_for_jobs_that_is_cut_loses_no_job(bench: Bench, through: Bench, proxy: Proxy, cut: Action) -> None:
    worker = through.start(concurrency=3)
    bench.task["note"].enqueue("before")
    bench.wait_ended("before")
    fault = proxy.on_request(waits, cut, nth=2)

    for i in range(3):
        bench.task["note"].enqueue(f"j{i}")
        bench.wait_ended(f"j{i}")

    assert fault.done.wait(10)
    bench.task["note"].enqueue("after")
    bench.wait_ended("after")
    bench.wait_settled()
    assert bench.ledger.read().repeated() == {}
    assert worker.returncode is None


@pytest.mark.parametrize("cut", CUTS)
def test_a_lost_reply_with_jobs_in_it_is_made_good_within_ten_ticks(
    bench: Bench, through: Bench, proxy: Proxy, cut: Action
) -> None:
    fault = proxy.on_request(waits, cut)
    through.start(concurrency=10)
    assert fault.arrived.wait(10)
    keys = [f"j{i}" for i in range(5)]

    bench.task["nap"].enqueue_many([(key, 0.01) for key in keys])

    bench.wait_ended(*keys, timeout=10)
    bench.wait_settled()
    assert fault.done.is_set()
    assert bench.ledger.read().repeated() == {}


# --- enqueue


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_lone_plain_enqueue_says_that_its_outcome_is_unknown(
    bench: Bench, through: Bench, proxy: Proxy, how: str, cut: Action
) -> None:
    through.app.broker.now_ms()  # connected
    fault = proxy.on_request(calls("enqueue"), cut)

    with pytest.raises(BrokerError, match="may or may not have been carried out") as error:
        ENQUEUE[how](through)

    assert fault.done.wait(5)
    assert error.value.maybe_enqueued
    assert error.value.job is not None
    waiting = bench.state("stream")
    assert waiting == ({} if cut == "lose_request" else {"stream": [error.value.job.uid.replace("-", "")]})
    if cut == "lose_request":
        assert error.value.retry() == error.value.job
        assert bench.state("stream") == {"stream": [error.value.job.uid.replace("-", "")]}


async def _aenqueue(bench: Bench) -> None:
    async with bench.app:
        await bench.task["note"].aenqueue("a")


ENQUEUE: dict[str, Callable[[Bench], object]] = {
    "sync": lambda bench: bench.task["note"].enqueue("a"),
    "async": lambda bench: asyncio.run(_aenqueue(bench)),
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("kind", ["unique", "job_id", "many", "many unique", "at once", "delayed with a lock"])
def test_any_other_enqueue_is_repeated_and_goes_in_once(
    bench: Bench, through: Bench, proxy: Proxy, kind: str, cut: Action
) -> None:
    through.app.broker.now_ms()
    fault = proxy.on_request(calls("enqueue"), cut)

    count = _enqueue(through, kind)

    assert fault.done.wait(5)
    state = bench.state()
    held = [word for name in ("stream", "jobs") for entry in _entries(state, name) for word in entry.split()]
    assert len(held) == len(set(held)) == count
    assert state["stats"]["enqueued"] == count
    assert state["stats"].get("refused", 0) == 0


def _enqueue(bench: Bench, kind: str) -> int:
    if kind == "unique":
        bench.task["single"].enqueue("a", 0)
    elif kind == "job_id":
        bench.task["note"].using(job_id="i").enqueue("a")
    elif kind == "many":
        assert bench.task["note"].enqueue_many([(f"j{i}",) for i in range(3000)]).enqueued == 3000
        return 3000
    elif kind == "many unique":
        result = bench.task["single"].enqueue_many([(f"j{i}", 0) for i in range(300)])
        assert (result.enqueued, result.duplicate_count) == (300, 0)
        return 300
    elif kind == "at once":
        asyncio.run(_many_at_once(bench))
        return 5
    else:
        bench.task["single"].using(delay=60).enqueue("a", 0)
    return 1


async def _many_at_once(bench: Bench) -> None:
    async with bench.app:
        await asyncio.gather(*(bench.task["note"].aenqueue(f"j{i}") for i in range(5)))


def _entries(state: dict[str, object], name: str) -> list[str]:
    part = state.get(name, [])
    return list(part.values()) if isinstance(part, dict) else list(part)  # type: ignore[call-overload]


@pytest.mark.parametrize("cut", CUTS)
def test_a_bulk_that_is_cut_again_and_again_goes_in_once(bench: Bench, through: Bench, proxy: Proxy, cut: Action) -> None:
    for nth in (1, 3, 4, 7):
        proxy.on_request(calls("enqueue"), cut, nth=nth)

    result = through.task["note"].enqueue_many([(f"j{i}",) for i in range(5000)])

    assert result.enqueued == 5000
    assert bench.stat("enqueued") == 5000
    assert len({word for entry in bench.state()["stream"] for word in entry.split()}) == 5000


def test_an_outcome_stays_uncertain_when_the_server_does_not_come_back(through: Bench, proxy: Proxy) -> None:
    """Later tries that cannot even connect do not make it certain that the first one did nothing."""
    through.app.broker._sync = through.app.broker.new_sync_client(patience=0.5)
    through.app.broker.now_ms()
    proxy.on_request(calls("enqueue"), "lose_reply", hook=proxy.refuse)

    with pytest.raises(BrokerError) as error:
        through.task["single"].enqueue("a", 0)

    assert error.value.maybe_enqueued
    proxy.accept()
    assert error.value.retry() == error.value.job  # it meets itself
