"""Sync tasks for threads and processes: each writes into the ledger that it ran. Another process finds them by their names.

app = build(url, namespace)
app.tasks["wait_for"].enqueue("a", gate)
with start(url, namespace, ledger, concurrency=4) as child: ...
"""

import asyncio
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastq import Backoff, Drop, FastQ, Retry, current_job
from tests.support import errors, process
from tests.support.ledger import Ledger

STEP = 0.005  # seconds between two looks


def note(key: str) -> None:
    """Runs, and that is all."""
    with Ledger.here().run(key, current_job().attempt):
        pass


def wait_for(key: str, path: str) -> None:
    """Runs until there is a file, and does not look whether it should stop."""
    with Ledger.here().run(key, current_job().attempt):
        while not Path(path).exists():
            time.sleep(STEP)


def listen(key: str, path: str) -> str:
    """Runs until there is a file or it is told to stop."""
    with Ledger.here().run(key, current_job().attempt):
        while not Path(path).exists():
            if current_job().cancelled:
                with Ledger.here().run(f"{key} was told"):
                    return "told"
            time.sleep(STEP)
    return "done"


def steps(key: str, seconds: float) -> None:
    """Fifty steps of work, each in the ledger, and an end that is too."""
    try:
        for step in range(50):
            with Ledger.here().run(f"{key} step {step}"):
                time.sleep(seconds / 50)
    finally:
        Ledger.here().end(Ledger.here().start(f"{key} end"))


async def async_steps(key: str, seconds: float) -> None:
    """The same on the event loop."""
    try:
        for step in range(50):
            with Ledger.here().run(f"{key} step {step}"):
                await asyncio.sleep(seconds / 50)
    finally:
        Ledger.here().end(Ledger.here().start(f"{key} end"))


async def async_wait_in_a_thread(key: str, path: str) -> None:
    """Uses a thread of asyncio's own."""
    await asyncio.to_thread(_wait, key, path)


def _wait(key: str, path: str) -> None:
    with Ledger.here().run(key):
        while not Path(path).exists():
            time.sleep(STEP)


async def async_exit(key: str) -> None:
    """A task of its own wants to end the process."""

    async def leave() -> None:
        sys.exit(3)

    with Ledger.here().run(key):
        await asyncio.create_task(leave())


def tell(key: str) -> dict[str, Any]:
    """What the job sees of itself."""
    job = current_job()
    with Ledger.here().run(key, job.attempt):
        assert job.deadline is not None
        return {
            "uid": job.uid, "task": job.task, "queue": job.queue, "attempt": job.attempt, "job_id": job.job_id,
            "fence": job.fence, "cancelled": job.cancelled, "lock": job.lock.key if job.lock else None,
            "left": job.deadline.timestamp() - time.time(), "enqueued": job.enqueued_at.timestamp(),
            "main thread": threading.current_thread() is threading.main_thread(),
        }  # fmt: skip


def die(key: str, how: str, times: int = 99) -> None:
    """Takes its process with it, in its first `times` attempts."""
    with Ledger.here().run(key, current_job().attempt):
        if current_job().attempt > times:
            return
        if how == "exit":
            os._exit(3)
        os.kill(os.getpid(), signal.Signals[how])


def with_family(key: str, path: str) -> None:
    """Starts a program that would go on for ever, then holds the interpreter as only compiled code can."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]) as family:
        Ledger.here().start(f"{key} {os.getpid()} {family.pid}")
        with Ledger.here().run(key, current_job().attempt):
            re.match(r"(a+)+$", "a" * 60 + "b")


def fail(key: str, kind: str) -> None:
    """Raises what errors.KINDS has under this name."""
    with Ledger.here().run(key, current_job().attempt):
        raise errors.KINDS[kind]()


async def async_fail(key: str, kind: str) -> None:
    """The same on the event loop."""
    with Ledger.here().run(key, current_job().attempt):
        raise errors.KINDS[kind]()


def again(key: str) -> None:
    """Asks for another attempt, and in that one for no more."""
    with Ledger.here().run(key, current_job().attempt):
        raise Retry(0) if current_job().attempt == 1 else Drop("enough")


def give(value: str) -> object:
    """Returns what this expression says."""
    return eval(value)


SYNC: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "note": (note, {}),
    "wait_for": (wait_for, {}),
    "listen": (listen, {}),
    "steps": (steps, {}),
    "tell": (tell, {}),
    "die": (die, {"retries": Backoff(retries=1, delay=0)}),
    "with_family": (with_family, {"retries": 0}),
    "fail": (fail, {"retries": 0}),
    "picky": (fail, {"retries": Backoff(retries=1, delay=0, on=(OSError,))}),
    "again": (again, {}),
    "give": (give, {"retries": 0}),
}
ASYNC: dict[str, Callable[..., Any]] = {
    "async_steps": async_steps,
    "async_fail": async_fail,
    "async_wait_in_a_thread": async_wait_in_a_thread,
    "async_exit": async_exit,
}


def build(url: str, namespace: str, *, executor: Any = "thread", lease: float = 1) -> FastQ:
    """A FastQ with these tasks, the sync ones for this executor. Each keeps a result."""
    app = FastQ(url, namespace=namespace, lease=lease)
    for name, (function, options) in SYNC.items():
        app.task(name=name, executor=executor, result_ttl=60, **options)(function)
    for name, function in ASYNC.items():
        app.task(name=name, result_ttl=60, retries=0)(function)
    return app


_WORKER = """
import json
from tests.support.sync_tasks import run
run(**json.loads(sys.argv[1]))
print("over", flush=True)
"""


def run(url: str, namespace: str, executor: str, worker: dict[str, Any]) -> None:
    """What a worker process does."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    build(url, namespace, executor=executor).worker(**worker).run()


def start(url: str, namespace: str, ledger: Ledger, *, executor: str = "thread", **worker: Any) -> process.Child:
    """A worker process that ends as any program does; it serves when its line "serves" comes."""
    arguments = {"url": url, "namespace": namespace, "executor": executor, "worker": worker}
    return process.script(_WORKER, json.dumps(arguments), env=ledger.environment)
