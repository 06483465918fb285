"""What the programs in `systems` have in common: how the bench calls them, and the loops that are timed.

A program has a `producer`, and `work(processes)`, which runs its worker until SIGTERM. Its three tasks take a number and a
text: "noop" and "once" count themselves, the latter being unique; "lag" tells how long it waited, its number being when it
was enqueued. Standard library only: every system's Python imports this.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

URL = os.environ.get("FASTQ_PEERS_URL", "")
TEXT = "x" * 50
ROOT = str(Path(__file__).parents[2])
START = f"import sys; sys.path.append({ROOT!r}); from bench.peers.child import main; main(*sys.argv[1:])"

_WARM = 200  # jobs before those that are timed: it connects, and the server knows its scripts
_WARM_NUMBERS = range(1_000_000_000, 1_000_000_000 + _WARM)  # unique jobs of their own


@dataclass(frozen=True)
class Producer:
    """How a system enqueues; each function may be an async one.

    `one(task, number)` enqueues a job. `many(task, numbers)` enqueues one for each number, in calls as large as suit the
    system. `in_flight` is `one` for callers that wait together, if that is another function. `threads`: these callers are
    threads, so many. `open` and `close` are called around all of it.
    """

    one: Callable[[str, int], Any]
    many: Callable[[str, range], Any] | None = None
    in_flight: Callable[[str, int], Any] | None = None
    threads: int = 0
    open: Callable[[], Any] | None = None
    close: Callable[[], Any] | None = None


def main(program: str, command: str, argument: str) -> None:
    """Be the worker, or a producer that prints how many jobs it enqueued a second."""
    module = importlib.import_module(f"bench.peers.systems.{program}")
    if command == "work":
        module.work(int(argument))
    else:
        print(json.dumps(_LOADS[command](module.producer, **json.loads(argument))))


def run_program(*arguments: str) -> NoReturn:
    """Become `python -m ...`, a system's own command, which finds the programs here last of all."""
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), ROOT]))
    os.execve(sys.executable, [sys.executable, "-P", "-m", *arguments], {**os.environ, "PYTHONPATH": path})


def run_loop(work: Coroutine[Any, Any, Any]) -> Any:
    """Run it on the fastest event loop that the system's environment has."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


# --- loads


def _one_by_one(producer: Producer, task: str, jobs: int, warm: bool = True) -> float:
    one = producer.one
    if inspect.iscoroutinefunction(one):

        async def enqueue_awaiting(numbers: range) -> None:
            for number in numbers:
                await one(task, number)

        return _timed(producer, enqueue_awaiting, jobs, warm)

    def enqueue(numbers: range) -> None:
        for number in numbers:
            one(task, number)

    return _timed(producer, enqueue, jobs, warm)


def _in_flight(producer: Producer, task: str, jobs: int, callers: int, warm: bool = True) -> float:
    one = producer.in_flight or producer.one
    if inspect.iscoroutinefunction(one):

        async def caller(numbers: Iterator[int]) -> None:
            for number in numbers:
                await one(task, number)

        async def enqueue_awaiting(numbers: range) -> None:
            shared = iter(numbers)
            await asyncio.gather(*(caller(shared) for _ in range(callers)))

        return _timed(producer, enqueue_awaiting, jobs, warm)

    def enqueue(numbers: range) -> None:
        def part(first: int) -> None:
            for number in numbers[first :: producer.threads]:
                one(task, number)

        with ThreadPoolExecutor(producer.threads) as pool:
            list(pool.map(part, range(producer.threads)))  # raises what a thread has raised

    return _timed(producer, enqueue, jobs, warm)


def _bulk(producer: Producer, task: str, jobs: int, warm: bool = True) -> float:
    many = producer.many
    assert many is not None, "this system has no bulk enqueue"
    if inspect.iscoroutinefunction(many):

        async def enqueue_awaiting(numbers: range) -> None:
            await many(task, numbers)

        return _timed(producer, enqueue_awaiting, jobs, warm)
    return _timed(producer, lambda numbers: many(task, numbers), jobs, warm)


def _pace(producer: Producer, jobs: int, per_second: float) -> float:
    """Enqueue "lag" at a steady pace; one that comes late is not made up for by a burst, as its own time is what counts."""
    one = producer.one
    if inspect.iscoroutinefunction(one):

        async def enqueue_awaiting(numbers: range) -> None:
            for pause in _pauses(len(numbers), per_second):
                await asyncio.sleep(pause)
                await one("lag", time.monotonic_ns())

        return _timed(producer, enqueue_awaiting, jobs, warm=False)

    def enqueue(numbers: range) -> None:
        for pause in _pauses(len(numbers), per_second):
            time.sleep(pause)
            one("lag", time.monotonic_ns())

    return _timed(producer, enqueue, jobs, warm=False)


_LOADS: dict[str, Callable[..., float]] = {
    "one": _one_by_one,
    "in_flight": _in_flight,
    "bulk": _bulk,
    "pace": _pace,
}


def _pauses(jobs: int, per_second: float) -> Iterator[float]:
    due = time.monotonic()
    for _ in range(jobs):
        due += 1 / per_second
        yield max(0.0, due - time.monotonic())


def _timed(producer: Producer, enqueue: Callable[[range], Any], jobs: int, warm: bool) -> float:
    """Jobs a second, with the system open and warm."""
    if inspect.iscoroutinefunction(enqueue):

        async def whole() -> float:
            if producer.open:
                await producer.open()
            if warm:
                await enqueue(_WARM_NUMBERS)
            start = time.perf_counter()
            await enqueue(range(jobs))
            seconds = time.perf_counter() - start
            if producer.close:
                await producer.close()
            return jobs / seconds

        rate: float = run_loop(whole())
        return rate
    if producer.open:
        producer.open()
    if warm:
        enqueue(_WARM_NUMBERS)
    start = time.perf_counter()
    enqueue(range(jobs))
    seconds = time.perf_counter() - start
    if producer.close:
        producer.close()
    return jobs / seconds
