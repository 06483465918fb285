"""Where a case takes place: a server, a namespace, a ledger, a producer, and worker processes."""

import contextlib
import itertools
import json
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import redis

from fastq import FastQ
from fastq.codec import Message
from fastq.keys import QueueKeys
from tests.cases.laws import assert_laws, drained
from tests.cases.tasks import Tasks
from tests.support.ledger import Ledger, Reading
from tests.support.process import Child, python, wait_until
from tests.support.servers import Server

ROOT = Path(__file__).parents[2]
WORKER = f"import sys; sys.path.append({str(ROOT)!r})\nfrom tests.cases.tasks import main; main()"
LEASE = 1.0  # seconds, where nothing else is said
SLOW = 3.0  # how much longer than it should something may take on a busy machine


class Site:
    """One case's place. `lease` is in seconds; `app` are further options of FastQ for its producer and its workers."""

    def __init__(self, server: Server, namespace: str, folder: Path, *, lease: float = LEASE, **app: Any) -> None:
        self.server = server
        self.namespace = namespace
        self.folder = folder
        self.lease = lease
        self.options: dict[str, Any] = {"lease": lease, **app}
        self.ledger = Ledger(folder / "ledger")
        self.client = server.client()
        self._strangers = {one["id"] for one in self.client.client_list()}
        self.app = FastQ(server.url, namespace=namespace, **self.options)
        self.tasks = Tasks(self.app)
        self.keys = QueueKeys(namespace, "default")
        self.accepted: set[str] = set()  # labels of the jobs that were enqueued
        self.workers: list[Child] = []
        self._numbers = itertools.count(1)

    # --- workers

    def start_worker(
        self, *, url: str | None = None, app: Mapping[str, Any] | None = None, policies: bool = False, **options: Any
    ) -> Child:
        """Start a worker process, without waiting for it.

        `options` are those of Worker, `app` further ones of FastQ; `policies`: it knows the tasks of `Policies` too.
        """
        options.setdefault("queues", ["default"])
        told = {"url": url or self.server.url, "namespace": self.namespace, "app": {**self.options, **(app or {})},
                "worker": options, "policies": policies}  # fmt: skip
        child = python("-c", WORKER, json.dumps(told), env=self.ledger.environment)
        self.workers.append(child)
        return child

    def worker(self, **options: Any) -> Child:
        """Start a worker process and wait until it serves its queues."""
        return self.ready(self.start_worker(**options))[0]

    def ready(self, *children: Child) -> list[Child]:
        """Wait until these worker processes serve their queues."""
        for child in children:
            child.wait_line(" serves ", timeout=30)
        return list(children)

    def pair(self, **options: Any) -> list[Child]:
        """Two workers, started at once."""
        return self.ready(self.start_worker(**options), self.start_worker(**options))

    def worker_of(self, label: str) -> Child:
        """The worker that runs (or ran last) the job of this label."""
        pid = [run.pid for run in self.ledger.read().runs if run.key == label][-1]
        return next(child for child in self.workers if child.pid == pid)

    # --- jobs

    def enqueue(self, task: Any, label: str, *args: Any, **kwargs: Any) -> Any:
        """Enqueue a job of this label and note that it was accepted; refusals are raised."""
        job = task.enqueue(label, *args, **kwargs)
        self.accepted.add(label)
        return job

    def enqueue_many(self, task: Any, labels: Iterable[str], **kwargs: Any) -> list[str]:
        """Enqueue a job for each label."""
        labels = list(labels)
        result = task.enqueue_many([{"label": label, **kwargs} for label in labels])
        assert result.enqueued == len(labels)
        self.accepted.update(labels)
        return labels

    def gate(self) -> "Gate":
        """Something that jobs can wait for."""
        return Gate(self.folder / f"gate-{next(self._numbers)}")

    # --- what happened

    def reading(self) -> Reading:
        return self.ledger.read()

    def wait_started(self, label: str, times: int = 1, timeout: float = 15) -> float:
        """Wait until the job has been started so often; how long that took."""
        begun = time.monotonic()
        wait_until(lambda: self.ledger.read().starts[label] >= times, timeout)
        return time.monotonic() - begun

    def wait_ended(self, *labels: str, timeout: float = 15) -> float:
        """Wait until these jobs have run to their end; how long that took."""
        begun = time.monotonic()
        wait_until(lambda: not self.ledger.read().missing(labels), timeout)
        return time.monotonic() - begun

    def log_lines(self, pattern: str) -> list[str]:
        """The lines of all workers' logs that fit."""
        return [line for child in self.workers for line in child.stderr.splitlines() if re.search(pattern, line)]

    def stats(self, queue: str = "default") -> dict[str, int]:
        """The counters of a queue."""
        found = self.client.hgetall(QueueKeys(self.namespace, queue).stats)
        return {name.decode(): int(value) for name, value in found.items()}

    def consumers(self, queue: str = "default") -> set[str]:
        """The names that the queue's groups and its list of live workers know."""
        keys = QueueKeys(self.namespace, queue)
        names = {name.decode() for name in self.client.zrange(keys.consumers, 0, -1)}
        for stream in (keys.stream, keys.front, keys.suspects):
            with contextlib.suppress(redis.ResponseError):
                names |= {found["name"].decode() for found in self.client.xinfo_consumers(stream, "fastq")}
        return names

    def dead_reasons(self, queue: str = "default") -> list[str]:
        """Why the dead jobs died."""
        keys = QueueKeys(self.namespace, queue)
        uids = self.client.zrange(keys.dead, 0, -1)
        whys = [self.client.hget(keys.jobs, uid + b"!") for uid in uids]
        return [why.decode() if why else _error(self.client.hget(keys.jobs, uid)) for uid, why in zip(uids, whys, strict=True)]

    def connections(self) -> set[str]:
        """The connections of this site's producers and workers, by their ids."""
        return {one["id"] for one in self.client.client_list() if one["name"] == "fastq"} - self._strangers

    # --- the end

    def assert_laws(self, *, may_repeat: Iterable[str] = (), dead: Iterable[str] = (), timeout: float = 20) -> Reading:
        """Wait until the queue is drained, and hold what happened against the laws (see there)."""
        return assert_laws(
            self.server, self.namespace, self.ledger, self.accepted, may_repeat=may_repeat, dead=dead, timeout=timeout
        )

    def assert_drained(self, timeout: float = 20) -> None:
        """Wait until nothing is left of any job but what has a TTL."""
        drained(self.client, self.namespace, timeout)

    def keys_without_ttl(self, queue: str = "default") -> set[str]:
        """The keys of a queue that live on, by the name behind its prefix."""
        prefix = QueueKeys(self.namespace, queue).prefix
        keys = list(self.client.scan_iter(match=f"{self.namespace}:{{{queue}}}:*", count=1000))
        return {key.removeprefix(prefix).decode("utf-8", "replace") for key in keys if self.client.ttl(key) == -1}

    def close(self) -> None:
        """End everything; no connection of ours is left on the server."""
        for child in self.workers:
            child.close()
            print(f"--- worker {child.pid}, exit code {child.returncode}\n{child.stderr}")  # shown when the test has failed
        self.app.close()
        self.ledger.close()


def _error(raw: bytes) -> str:
    error = Message(raw).extras["error"]
    return f"{error['why']}: {error['type']}: {error['text']}"


class Gate:
    """What jobs wait for until the test opens it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def open(self) -> None:
        """Let the jobs go on."""
        self._path.touch()
