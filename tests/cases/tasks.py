"""The tasks of the field cases, and the program that a worker process of a case runs.

python -c "from tests.cases.tasks import main; main()" '{"url": ..., "namespace": ..., "app": {...}, "worker": {...}, ...}'
"""

import asyncio
import itertools
import json
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from typing import Any, ClassVar

from fastq import Backoff, Drop, FastQ, Unique, current_job
from fastq.logs import set_up
from tests.support.ledger import Ledger

UNTIL: tuple[Any, ...] = ("done", "success", "start", "ttl")
ON_CONFLICT: tuple[Any, ...] = ("raise", "skip", "replace", "rerun")
QUICK_RETRIES = Backoff(retries=5, delay=0.2, factor=1.2, jitter=0)


def lock_of(label: str) -> str:
    """The unique key of a job, which is the part of its label before the slash."""
    return label.partition("/")[0]


class Tasks:
    """The tasks of one app. The first argument of each is the job's label, which the ledger knows it by."""

    def __init__(self, app: FastQ) -> None:
        self.work = app.task(work, name="work", retries=QUICK_RETRIES)
        self.sync_work = app.task(sync_work, name="sync_work", retries=QUICK_RETRIES)
        self.tracked = app.task(work_with_result, name="tracked", retries=QUICK_RETRIES, result_ttl=60)
        self.blocks = app.task(blocks, name="blocks")
        self.poison = app.task(poison, name="poison", timeout=60, unique=Unique(ttl=600, key="label"))
        self.unique = app.task(work_alone, name="unique", retries=QUICK_RETRIES, timeout=60, unique=Unique(ttl=600, key=lock_key))
        self.renew = app.task(work_renewed, name="renew", retries=QUICK_RETRIES, unique=Unique(ttl=2, key=lock_key, renew=True))
        self.expect = app.task(expect, name="expect", retries=QUICK_RETRIES)
        self.of_queue = {name: app.task(work, name=f"work_{name}", queue=name, retries=QUICK_RETRIES) for name in "abc"}
        self.defaults = app.task(fails, name="defaults")


class Policies:
    """A task for each policy of unique jobs that there can be, by a name such as `done-rerun-renew`.

    With until "done" a lock outlives every run of its job. The other locks are short, so that the end of a soak need not wait for
    them: runs of one of their keys may overlap.
    """

    # Of the program: producers of one process that share a policy take turns, so that it is known whose call came last.
    order: ClassVar[dict[str, threading.Lock]] = defaultdict(threading.Lock)

    def __init__(self, app: FastQ) -> None:
        self.tasks: dict[str, Any] = {}
        for until, conflict, renew in itertools.product(UNTIL, ON_CONFLICT, (False, True)):
            if until in ("start", "ttl") and (renew or conflict in ("replace", "rerun")):
                continue
            name = "-".join((until, conflict, *(("renew",) if renew else ())))
            ttl = 2 if renew or until != "done" else 600
            unique = Unique(ttl=ttl, key=lock_key, until=until, on_conflict=conflict, renew=renew)
            self.tasks[name] = app.task(work_alone, name=name, retries=QUICK_RETRIES, timeout=60, unique=unique)


def lock_key(label: str, seconds: float = 0.0, failures: int = 0, gate: str = "") -> str:
    """What makes two jobs the same."""
    return lock_of(label)


async def work(label: str, seconds: float = 0.0, failures: int = 0, gate: str = "") -> None:
    """Take `seconds`, wait until the file `gate` exists, and fail in the first `failures` attempts."""
    attempt = current_job().attempt
    with Ledger.here().run(label, attempt, current_job().fence):
        if seconds:
            await asyncio.sleep(seconds)
        while gate and not os.path.exists(gate):
            await asyncio.sleep(0.01)
        if attempt <= failures:
            raise RuntimeError("this attempt is meant to fail")


async def work_with_result(label: str, seconds: float = 0.0, failures: int = 0, gate: str = "") -> str:
    """The same, with the label as its result."""
    await work(label, seconds, failures, gate)
    return label


async def work_alone(label: str, seconds: float = 0.0, failures: int = 0, gate: str = "") -> None:
    """The same, for a unique task."""
    await work(label, seconds, failures, gate)


async def work_renewed(label: str, seconds: float = 0.0, failures: int = 0, gate: str = "") -> None:
    """The same, for one whose lock is renewed."""
    await work(label, seconds, failures, gate)


def sync_work(label: str, seconds: float = 0.0, failures: int = 0, gate: str = "") -> None:
    """The same in a thread."""
    attempt = current_job().attempt
    with Ledger.here().run(label, attempt, current_job().fence):
        if seconds:
            time.sleep(seconds)
        while gate and not os.path.exists(gate):
            time.sleep(0.01)
        if attempt <= failures:
            raise RuntimeError("this attempt is meant to fail")


async def blocks(label: str, seconds: float) -> None:
    """Hold the event loop."""
    with Ledger.here().run(label, current_job().attempt):
        time.sleep(seconds)


async def poison(label: str) -> None:
    """Kill the worker's process."""
    Ledger.here().start(label, current_job().attempt)
    os.kill(os.getpid(), signal.SIGKILL)


async def fails(label: str) -> None:
    """Fail, whatever happens."""
    with Ledger.here().run(label, current_job().attempt):
        raise ValueError("it never works")


async def expect(label: str, value: Any, shown: str, failures: int = 0) -> None:
    """Compare an argument with its repr from where it was enqueued; a difference drops the job, unfinished."""
    attempt = current_job().attempt
    token = Ledger.here().start(label, attempt)
    if attempt <= failures:
        raise RuntimeError("this attempt is meant to fail")
    if repr(value) != shown:
        raise Drop(f"{value!r} came, not {shown}")
    Ledger.here().end(token)


def main() -> None:
    """Run a worker until it is told to end, or until this process's input ends: it survives no test."""
    told = json.loads(sys.argv[1])
    set_up("text", told.get("log_level", "info"))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    app = FastQ(told["url"], namespace=told["namespace"], **told["app"])
    Tasks(app)
    if told["policies"]:
        Policies(app)
    app.worker(**told["worker"]).run()


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)
