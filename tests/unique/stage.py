"""A stage for unique jobs: a task for every policy, a worker in this process, and jobs that end when and how the test says.

    job = stage.task("done", "rerun").enqueue("k")
    run = stage.run_of("k")             # waits for it to start
    run.end("result"); run.fail()       # or stage.let("k") before: its runs end by themselves
"""

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import redis

from fastq import Backoff, CurrentJob, FastQ, Job, Task, Unique, current_job
from fastq.keys import QueueKeys, queue_keys
from fastq.locks import LockInfo
from tests.support.process import wait_until
from tests.unique.world import POLICIES

TTL = 600.0
QUEUES = ("default", "other", "third")
_numbers = itertools.count()


class Fault(Exception):
    """What a job on this stage fails with."""


@dataclass
class Run:
    """One attempt that has started."""

    key: str
    change: int
    job: CurrentJob
    uid: str
    attempt: int
    fence: int
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    told: asyncio.Event = field(default_factory=asyncio.Event)
    value: Any = None
    error: BaseException | None = None

    def end(self, value: Any = None) -> None:
        """Let it return."""
        self.value = value
        self._tell()

    def fail(self, error: BaseException | None = None) -> None:
        """Let it raise."""
        self.error = error or Fault(f"attempt {self.attempt} of {self.key}")
        self._tell()

    def _tell(self) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.told.set)

    def wait_ended(self, timeout: float = 30) -> None:
        """Wait until its body is left, by whatever way."""
        wait_until(lambda: self.ended is not None, timeout)


def idle(client: redis.Redis, keys: QueueKeys) -> bool:
    """Whether a queue has no job that waits, runs or is left for later."""
    at_once = client.pipeline()  # a job that moves meanwhile could be missed everywhere
    for stream in (keys.stream, keys.front, keys.suspects):
        at_once.xlen(stream)
    return not any(at_once.exists(keys.pending, keys.parking, keys.scheduled).execute())


class Stage:
    """An app on a server, its tasks and what they do."""

    def __init__(self, url: str, namespace: str, client: redis.Redis, **options: Any) -> None:
        self.app = FastQ(url, namespace=namespace, **{"lease": 1, **options})
        self.namespace, self.client = namespace, client
        self.runs: list[Run] = []
        self._let: set[str] = set()
        for until, on_conflict, renew in POLICIES:
            self.define(self.name(until, on_conflict, renew), Unique(TTL, "key", until, on_conflict, renew))  # type: ignore[arg-type]
        self.define("plain", None)
        self.define("plain2", None)
        self.define("short", Unique(1, "key"))
        self.define("brief.renew", Unique(1, "key", renew=True))
        for name, renew in (("long.retry", False), ("long.retry.renew", True)):
            self.define(name, Unique(TTL, "key", renew=renew), retries=Backoff(1, delay=3600, max_delay=3600, jitter=0))
        self.define("skip.result", Unique(TTL, "key", on_conflict="skip"), result_ttl=60)

    @staticmethod
    def name(until: str, on_conflict: str, renew: bool) -> str:
        """The name of the task with this policy."""
        return f"{until}.{on_conflict}.{'renew' if renew else 'fixed'}"

    def define(self, name: str, unique: Unique | None, **options: Any) -> Task[..., Any]:
        """One more task; before a worker serves."""

        async def body(key: str, change: int = 0) -> Any:
            return await self._perform(key, change)

        return self.app.task(name=name, unique=unique, **{"retries": Backoff(1, delay=0.05), **options})(body)

    def task(self, until: str = "done", on_conflict: str = "raise", renew: bool = False) -> Task[..., Any]:
        """The task with this policy; every key of it is its own."""
        return self.app.tasks[self.name(until, on_conflict, renew)]

    def key(self) -> str:
        """A key that no other test uses."""
        return f"k{next(_numbers)}"

    def keys(self, queue: str = "default") -> QueueKeys:
        return queue_keys(self.namespace, queue)

    @contextmanager
    def paused(self, queue: str) -> Iterator[None]:
        """Start nothing of a queue meanwhile."""
        self.app.queue(queue).pause()
        yield
        self.app.queue(queue).resume()

    def let(self, key: str) -> None:
        """Let all runs of a key end by themselves from now on."""
        self._let.add(key)
        for run in self.of(key):
            if run.ended is None:
                run.end()

    def of(self, key: str) -> list[Run]:
        """The runs of a key so far."""
        return [run for run in self.runs if run.key == key]

    def run_of(self, key: str, number: int = 1, timeout: float = 30) -> Run:
        """The `number`-th run of a key, when it has started."""
        wait_until(lambda: len(self.of(key)) >= number, timeout)
        return self.of(key)[number - 1]

    def lock(self, task: Any, key: str) -> LockInfo | None:
        """The lock of a key, looked up."""
        return self.app.locks.get(task, key)

    def wait_free(self, task: Any, key: str, timeout: float = 30) -> None:
        """Wait until the lock of a key is gone."""
        wait_until(lambda: self.lock(task, key) is None, timeout)

    def wait_state(self, task: Any, key: str, state: str, timeout: float = 30) -> LockInfo:
        """Wait until the lock of a key tells this state of its holder."""

        def look() -> LockInfo | None:
            lock = self.lock(task, key)
            return lock if lock is not None and lock.state == state else None

        return wait_until(look, timeout)  # type: ignore[return-value]

    def wait_dead(self, job: Job, timeout: float = 30) -> None:
        """Wait until a job is dead."""
        wait_until(lambda: self.client.zscore(self.keys(job.queue).dead, job.raw_uid) is not None, timeout)

    def wait_settled(self, timeout: float = 30) -> None:
        """Wait until the queues are empty and nothing is left for later."""
        wait_until(lambda: all(idle(self.client, self.keys(queue)) for queue in QUEUES), timeout)

    def stats(self, queue: str = "default") -> Counter[str]:
        """The counters of a queue."""
        return Counter({name.decode(): int(by) for name, by in self.client.hgetall(self.keys(queue).stats).items()})

    async def _perform(self, key: str, change: int) -> Any:
        job = current_job()
        run = Run(key, change, job, job.uid, job.attempt, job.fence)
        self.runs.append(run)
        try:
            if key not in self._let:
                await run.told.wait()
        finally:
            run.ended = time.monotonic()
        if run.error is not None:
            raise run.error
        return run.value


@contextmanager
def serving(app: FastQ, **options: Any) -> Iterator[Any]:
    """A worker on an event loop in a thread."""
    options = {"queues": QUEUES, "concurrency": 20, "grace": 0, **options}
    worker = app.worker(**options)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=lambda: loop.run_until_complete(worker.arun()), name="worker")
    thread.start()
    client = redis.Redis.from_url(app.config.url or "")
    try:
        known = [queue_keys(app.config.namespace, queue).consumers for queue in options["queues"]]
        wait_until(lambda: all(client.exists(consumers) for consumers in known), 30)
        yield worker
    finally:
        client.close()
        loop.call_soon_threadsafe(worker.stop)
        thread.join(20)
        assert not thread.is_alive(), "the worker does not end"
        loop.close()
