"""The tasks that tests of the worker run, in this process or in others: each writes into the ledger that it ran.

app = build(url, namespace, lease=1)
app.tasks["note"].enqueue("a")
with worker(app, concurrency=4) as child: ...
"""

import asyncio
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fastq import Backoff, Drop, FastQ, Retry, Unique, current_job
from tests.support import process
from tests.support.ledger import Ledger

AT_ONCE = Backoff(retries=3, delay=0)


async def note(key: str) -> None:
    """Runs, and that is all."""
    with Ledger.here().run(key, current_job().attempt):
        pass


async def nap(key: str, seconds: float) -> None:
    """Waits, as a job does that talks to somebody."""
    with Ledger.here().run(key, current_job().attempt):
        await asyncio.sleep(seconds)


async def wait_for(key: str, path: str) -> None:
    """Runs until there is a file."""
    with Ledger.here().run(key, current_job().attempt):
        while not Path(path).exists():
            await asyncio.sleep(0.005)


async def fail(key: str, times: int) -> None:
    """Fails in its first `times` attempts."""
    with Ledger.here().run(key, current_job().attempt):
        if current_job().attempt <= times:
            raise RuntimeError(f"attempt {current_job().attempt} of {key}")


async def stubborn(key: str, seconds: float) -> None:
    """Does not listen when it is told to stop."""
    end = time.monotonic() + seconds
    with Ledger.here().run(key, current_job().attempt):
        while time.monotonic() < end:
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue


async def defiant(key: str, seconds: float) -> None:
    """Does not even listen when its coroutine is closed."""
    end = time.monotonic() + seconds
    with Ledger.here().run(key, current_job().attempt):
        while time.monotonic() < end:
            try:
                await asyncio.sleep(0.05)
            except BaseException:
                continue


async def die(key: str) -> None:
    """Takes its worker with it."""
    Ledger.here().start(key, current_job().attempt)
    os.kill(os.getpid(), signal.SIGKILL)


async def hog(key: str, seconds: float) -> None:
    """Holds the whole event loop."""
    with Ledger.here().run(key, current_job().attempt):
        time.sleep(seconds)


async def drop(key: str) -> None:
    """Ends without error, for good."""
    with Ledger.here().run(key):
        raise Drop("not needed any more")


async def again(key: str, delay: float) -> None:
    """Asks for one more attempt."""
    with Ledger.here().run(key, current_job().attempt):
        if current_job().attempt == 1:
            raise Retry(delay)


def block(key: str, seconds: float) -> None:
    """A sync task, in a thread."""
    with Ledger.here().run(key, current_job().attempt):
        time.sleep(seconds)


TASKS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "note": (note, {}),
    "nap": (nap, {}),
    "wait_for": (wait_for, {}),
    "fail": (fail, {"retries": AT_ONCE}),
    "limited": (nap, {"timeout": 0.2, "retries": 0}),
    "stubborn": (stubborn, {"timeout": 0.2, "retries": 0}),
    "defiant": (defiant, {}),
    "die": (die, {}),
    "hog": (hog, {}),
    "drop": (drop, {}),
    "again": (again, {}),
    "block": (block, {}),
    "single": (nap, {"unique": Unique(ttl=60, key="key")}),
    "single_wait": (wait_for, {"unique": Unique(ttl=60, key="key")}),
    "at_start": (nap, {"unique": Unique(ttl=60, key="key", until="start")}),
    "tracked": (nap, {"track": True}),
}


def build(url: str, namespace: str, *, lease: float = 1, without: str = "", **options: Any) -> FastQ:
    """A FastQ with these tasks, but for `without`."""
    app = FastQ(url, namespace=namespace, lease=lease, **options)
    for name, (function, task_options) in TASKS.items():
        if name != without:
            app.task(name=name, **task_options)(function)
    return app


_WORKER = """
import json
from tests.support.tasks import run
run(**json.loads(sys.argv[1]))
"""


def run(url: str, namespace: str, app: Mapping[str, Any], worker: Mapping[str, Any], call_timeout: float | None) -> None:
    """What a worker process does."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    made = build(url, namespace, **app)
    if call_timeout is not None:
        made.broker.new_client = partial(made.broker.new_client, timeout=call_timeout)  # type: ignore[method-assign]
    made.worker(**worker).run()
    # Threads that are still in a job would hold up the interpreter's own end.
    os._exit(0)


def start(
    url: str,
    namespace: str,
    ledger: Ledger,
    *,
    app: Mapping[str, Any] | None = None,
    call_timeout: float | None = None,
    **worker: Any,
) -> process.Child:
    """A worker process; it serves when its line "serves" comes.

    `app`: options of `build`, `worker`: of `app.worker`; `call_timeout`: seconds after which a silent connection is dead.
    """
    arguments = {"url": url, "namespace": namespace, "app": app or {}, "worker": worker, "call_timeout": call_timeout}
    return process.script(_WORKER, json.dumps(arguments), env=ledger.environment)
