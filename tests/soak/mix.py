"""What is enqueued: a mix of plain, delayed, failing, long and unique jobs, by producers that note what came of each call."""

import itertools
import random
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from fastq import BrokerError, FastQ
from fastq.errors import AlreadyEnqueued, BulkError
from tests.cases.tasks import Policies, Tasks

KEYS = 3  # of each policy: few, so that calls meet each other


@dataclass
class Calls:
    """What the producers were told. Labels say what a job is: `<key>/<number>`, and a key begins with its policy's name."""

    accepted: dict[str, int] = field(default_factory=dict)  # label -> failures that it was told to have before it succeeds
    uncertain: set[str] = field(default_factory=set)  # the reply was lost: in, or not
    order: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # by key: labels in or uncertain, in order
    refused: int = 0

    def note(self, label: str, failures: int, certain: bool = True) -> None:
        if certain:
            self.accepted[label] = failures
        else:
            self.uncertain.add(label)
        self.order[label.partition("/")[0]].append(label)


class Producer:
    """A thread that enqueues until it is told to stop; `pause` is the mean of the seconds between two calls."""

    def __init__(self, app: FastQ, calls: Calls, name: str, seed: int, pause: float) -> None:
        self._app, self._tasks, self._policies = app, Tasks(app), Policies(app)
        self._calls, self._name, self._pause = calls, name, pause
        self._chance = random.Random(seed)
        self._serial = itertools.count(1)
        self._stop = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._app.close()
        if self.error:
            raise self.error

    def _run(self) -> None:
        kinds = (self._plain, self._bulk, self._delayed, self._failing, self._long, self._unique, self._unique, self._unique)
        try:
            while not self._stop.wait(self._chance.expovariate(1 / self._pause)):
                self._chance.choice(kinds)()
        except BaseException as error:
            self.error = error

    def _label(self, key: str) -> str:
        return f"{key}/{self._name}-{next(self._serial)}"

    def _plain(self) -> None:
        self._enqueue(self._tasks.work, self._label(f"plain{next(self._serial)}"))

    def _delayed(self) -> None:
        delay = self._chance.uniform(0.05, 3)
        self._enqueue(self._tasks.work.using(delay=delay), self._label(f"delayed{next(self._serial)}"))

    def _failing(self) -> None:
        self._enqueue(self._tasks.work, self._label(f"failing{next(self._serial)}"), failures=self._chance.randint(1, 3))

    def _long(self) -> None:
        task = self._chance.choice((self._tasks.work, self._tasks.sync_work))
        self._enqueue(task, self._label(f"long{next(self._serial)}"), seconds=self._chance.uniform(0.5, 4))

    def _unique(self) -> None:
        name, task = self._chance.choice(list(self._policies.tasks.items()))
        options: dict[str, Any] = {"seconds": self._chance.choice((0.0, 0.01, 0.3))}
        if self._chance.random() < 0.2:
            options["failures"] = self._chance.randint(1, 2)
        if self._chance.random() < 0.3:
            task = task.using(delay=self._chance.uniform(0.05, 1))
        with self._policies.order[name]:  # so that the order of calls is that of the notes
            self._enqueue(task, self._label(f"{name}.{self._chance.randrange(KEYS)}"), **options)

    def _bulk(self) -> None:
        labels = [self._label(f"bulk{next(self._serial)}") for _ in range(self._chance.randint(2, 80))]
        try:
            self._tasks.work.enqueue_many([(label,) for label in labels])
            certain = len(labels)
        except BulkError as error:
            certain = error.index if not error.uncertain else 0
        for place, label in enumerate(labels):
            self._calls.note(label, 0, place < certain)

    def _enqueue(self, task: Any, label: str, **options: Any) -> None:
        failures = options.get("failures", 0)
        try:
            job = task.enqueue(label, **options)
        except AlreadyEnqueued:
            self._calls.refused += 1
        except BrokerError as error:
            if error.maybe_enqueued:
                self._calls.note(label, failures, False)
            time.sleep(0.05)
        else:
            if job.conflict == "skipped":
                self._calls.refused += 1
            else:
                self._calls.note(label, failures)
