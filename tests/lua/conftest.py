"""What tests of scripts share: one queue, the calls that bring it into a state, and that state."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import pytest
import redis as redis_py

from fastq.broker import requests
from fastq.broker.broker import Broker
from fastq.broker.requests import Refusal, Request, Tick
from fastq.config import Config
from fastq.keys import QueueKeys
from tests.support.builders import NOW, frame, uid
from tests.support.state import State, snapshot

T = TypeVar("T")
LEASE = 10_000
STREAMS = ("stream", "front", "suspects")


class Queue:
    """A queue whose scripts are called one by one, on a clock that stands still at `now`."""

    def __init__(self, url: str, namespace: str, client: redis_py.Redis) -> None:
        self.broker = Broker(Config(url, namespace))
        self.keys = QueueKeys(namespace, "q")
        self.client = client
        self.now = NOW
        self._numbers: dict[str, int] = {}
        self._entries = 0

    def state(self, *parts: str) -> State:
        """The whole state, or only these parts of it."""
        whole = snapshot(self.client, self.keys)
        return {name: part for name, part in whole.items() if not parts or name in parts}

    def call(self, request: Request[T]) -> T:
        return self.broker.call(request)

    # --- producers

    def add(self, *messages: bytes | str, stream: str = "stream") -> bytes:
        """Put an entry into a stream by hand; a string stands for a plain message of that label."""
        # No two streams of a queue use the same id: scripts see to that, and so must we.
        self._entries += 1
        entry_id = f"{NOW}-{self._entries}"
        found: bytes = self.client.xadd(getattr(self.keys, stream), {b"f": frame(*messages)}, id=entry_id)
        return found

    def enqueue(self, *groups: Sequence[Any], jobs: int | None = None, **options: Any) -> list[Refusal]:
        options = {"laned": True, "now": self.now, **options}
        count = len(groups) if jobs is None else jobs
        return self.call(requests.enqueue(self.keys, groups, count, **options))

    def lock(self, key: str) -> bytes:
        """The Redis key of the lock that a message of task "t" calls `key`."""
        return self.keys.unique(f"t:{key}".encode())

    def hold(self, key: str, owner: str, *, state: str = "W", ms: int = 60_000) -> None:
        """Give a lock to a job by hand."""
        self.client.set(self.lock(key), uid(owner) + state.encode(), px=ms)

    # --- workers

    def join(self, worker: str = "w") -> int:
        return self.call(requests.join(self.keys, worker.encode(), self.now))

    def read(self, worker: str = "w", *, stream: str = "stream", count: int = 100) -> list[bytes]:
        """Give entries to a worker; their ids."""
        streams = {getattr(self.keys, stream): ">"}
        found = self.client.xreadgroup("fastq", worker, streams, count=count)
        return [entry_id for _, entries in found for entry_id, _ in entries]

    def tick(self, worker: str = "w", **options: Any) -> Tick:
        bounds = {"lease_ms": LEASE, "limit": 100, "max_crashes": 3, "dead_jobs": 100, "dead_bytes": 1 << 20, "dead_ms": 10**9}
        return self.call(requests.tick(self.keys, worker.encode(), now=self.now, **{**bounds, **options}))

    def settle(self, worker: str = "w", *, number: int | None = None, **report: Any) -> int:
        """Settle what `report` says: the fields of fastq.worker.report.Report."""
        from fastq.worker.report import Report

        if number is None:
            number = self._numbers[worker] = self._numbers.get(worker, 0) + 1
        arguments = Report(**report).arguments()
        return self.call(requests.settle(self.keys, worker.encode(), number, arguments, now=self.now))


@pytest.fixture
def queue(url: str, namespace: str, redis: redis_py.Redis) -> Iterator[Queue]:
    queue = Queue(url, namespace, redis)
    yield queue
    queue.broker.close()
