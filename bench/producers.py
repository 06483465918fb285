"""Producers that are measured, each to be run as a child (bench/children.py) on an empty server."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from collections.abc import Iterator

import redis
import uvloop

from bench.children import begin, memory_bytes
from bench.pace import pace
from bench.tasks import TEXT, app, first, lag, lag_of_some, noop
from fastq.broker import requests

LONE_CALL = 1000  # jobs in a call that adds frames of one


def bulk(task: str, jobs: int) -> tuple[float, float]:
    """Jobs a second of one `enqueue_many`, all different, and the seconds of CPU that it takes per job."""
    first.enqueue()
    begin()
    start, cpu_start = time.perf_counter(), time.process_time()
    result = app.tasks[task].enqueue_many(_calls(jobs))
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    assert result.enqueued == jobs, f"{result.enqueued} of {jobs} jobs got in"
    return jobs / seconds, cpu_seconds / jobs


def lone(jobs: int) -> None:
    """Put each job into a frame of its own, as many producers that enqueue one by one would; not measured."""
    first.enqueue()
    route = noop.route
    now_ms = app.broker.now_ms()
    for begun in range(0, jobs, LONE_CALL):
        numbers = range(begun, min(begun + LONE_CALL, jobs))
        groups = [requests.plain_frame(route.encode((number, TEXT), {}, now_ms).message, 1) for number in numbers]
        app.broker.call(requests.enqueue(route.keys, groups, len(groups), laned=True))


def one_by_one(jobs: int) -> float:
    """Jobs a second of `enqueue`, one after another."""
    app.broker.now_ms()
    begin()
    start = time.perf_counter()
    for number in range(jobs):
        noop.enqueue(number, TEXT)
    return jobs / (time.perf_counter() - start)


def in_flight(jobs: int, callers: int) -> float:
    """Jobs a second of `callers` coroutines that each await one `aenqueue` after another, on one event loop."""

    async def caller(numbers: Iterator[int]) -> None:
        for number in numbers:
            await noop.aenqueue(number, TEXT)

    async def run() -> float:
        await noop.aenqueue(0, TEXT)
        numbers = iter(range(jobs))
        begin()
        start = time.perf_counter()
        await asyncio.gather(*(caller(numbers) for _ in range(callers)))
        return jobs / (time.perf_counter() - start)

    return uvloop.run(run())


def evalsha(jobs: int) -> float:
    """The reference of one by one: calls a second of redis-py's own `evalsha` that adds an entry of the same size."""
    client = redis.Redis.from_url(os.environ["FASTQ_URL"])
    message = noop.route.encode((0, TEXT), {}, app.broker.now_ms()).message
    sha = client.script_load("return redis.call('XADD', KEYS[1], '*', 'f', ARGV[1])")
    begin()
    start = time.perf_counter()
    for _ in range(jobs):
        client.evalsha(sha, 1, "bench:{default}:stream", message)
    return jobs / (time.perf_counter() - start)


def steady(jobs: int, per_second: float) -> None:
    """Enqueue `lag` jobs at a steady pace."""
    for _ in pace(jobs, per_second):
        lag.enqueue(time.monotonic())


def paced(jobs: int, per_second: float) -> None:
    """Enqueue `lag_of_some` jobs in bulk at a steady pace, about 200 times a second."""
    first.enqueue()  # connects, which is no wait of a job
    batch = int(per_second / 200)
    for number in pace(-(-jobs // batch), per_second / batch):
        now = time.monotonic()
        some = range(number * batch, min((number + 1) * batch, jobs))
        lag_of_some.enqueue_many(((one, now) for one in some), handles=False)


def memory(jobs: int, handles: bool) -> float:
    """Bytes per job that one `enqueue_many` from a generator needs at its peak, over what it needs for few jobs."""
    noop.enqueue_many(_calls(50_000), handles=handles)
    floor = _peak_bytes()
    result = noop.enqueue_many(_calls(jobs), handles=handles)
    assert result.enqueued == jobs, f"{result.enqueued} of {jobs} jobs got in"
    return (_peak_bytes() - floor) / jobs


def _calls(jobs: int) -> Iterator[tuple[int, str]]:
    return ((number, TEXT) for number in range(jobs))


def _peak_bytes() -> int:
    """The most memory that this process has had."""
    if sys.platform == "linux":  # ru_maxrss begins with the parent's there
        return memory_bytes("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
