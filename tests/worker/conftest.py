"""What tests of the worker share: an app whose jobs write a ledger, worker processes, and the state of the queue."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py

from fastq import FastQ
from fastq.keys import queue_keys
from tests.support import process, sync_tasks, tasks
from tests.support.ledger import VARIABLE, Ledger
from tests.support.process import Child
from tests.support.state import State, snapshot


class Bench:
    """One app, its ledger and its workers. `url` may go through a proxy; `client` does not."""

    def __init__(self, url: str, namespace: str, client: redis_py.Redis, ledger: Ledger, **options: Any) -> None:
        self.url, self.namespace, self.client, self.ledger = url, namespace, client, ledger
        self.options = options
        self.app: FastQ = tasks.build(url, namespace, **options)
        self.task = self.app.tasks
        self._children: list[Child] = []

    def start(self, *, url: str | None = None, app: dict[str, Any] | None = None, serves: bool = True, **options: Any) -> Child:
        """A worker process that serves already."""
        settings = {**self.options, **(app or {})}
        child = tasks.start(url or self.url, self.namespace, self.ledger, app=settings, **options)
        self._children.append(child)
        if serves:
            child.wait_line("serves")
        return child

    def burst(self, **options: Any) -> None:
        """Run all that waits, in this process."""
        self.app.worker(burst=True, **options).run()

    def state(self, *parts: str, queue: str = "default") -> State:
        """The whole state of a queue, or only these parts of it."""
        whole = snapshot(self.client, queue_keys(self.namespace, queue))
        return {name: part for name, part in whole.items() if not parts or name in parts}

    def stat(self, name: str, queue: str = "default") -> int:
        """A counter of the queue."""
        return int(self.client.hget(queue_keys(self.namespace, queue).stats, name) or 0)

    def started(self, key: str) -> int:
        """How often a job has started so far."""
        return self.ledger.read().starts[key]

    def wait_started(self, *keys: str, timeout: float = 15) -> None:
        """Wait until these jobs have started."""
        process.wait_until(lambda: set(keys) <= self.ledger.read().starts.keys(), timeout)

    def wait_ended(self, *keys: str, timeout: float = 15) -> None:
        """Wait until these jobs have been run to their end."""
        process.wait_until(lambda: not self.ledger.read().missing(keys), timeout)

    def wait_settled(self, queue: str = "default", timeout: float = 15) -> None:
        """Wait until nothing waits, is scheduled or is in anybody's hands."""

        def settled() -> bool:
            left = self.state("stream", "front", "suspects", "scheduled", "pending", queue=queue)
            held = [held for stream in left.pop("pending", {}).values() for held in stream.values()]
            return not left and not any(held)

        process.wait_until(settled, timeout)

    def close(self) -> None:
        for child in self._children:
            child.close()
        self.app.close()


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    ledger = Ledger(tmp_path / "ledger")
    monkeypatch.setenv(VARIABLE, str(ledger.path))
    yield ledger
    ledger.close()


@pytest.fixture
def bench(url: str, namespace: str, redis: redis_py.Redis, ledger: Ledger) -> Iterator[Bench]:
    bench = Bench(url, namespace, redis, ledger)
    yield bench
    bench.close()


@pytest.fixture
def bench_on(namespace: str, ledger: Ledger) -> Iterator[Callable[..., Bench]]:
    """Makes a Bench on another server, or through a proxy."""
    made: list[Bench] = []

    def make(url: str, client: redis_py.Redis, **options: Any) -> Bench:
        made.append(Bench(url, namespace, client, ledger, **options))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


@pytest.fixture
def start_sync(url: str, namespace: str, ledger: Ledger) -> Iterator[Callable[..., Child]]:
    """Starts worker processes with the tasks of tests/support/sync_tasks.py; takes `executor` and the options of a worker."""
    started: list[Child] = []

    def start(**options: Any) -> Child:
        started.append(sync_tasks.start(url, namespace, ledger, **options))
        started[-1].wait_line("serves")
        return started[-1]

    yield start
    for child in started:
        child.close()
