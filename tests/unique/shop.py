"""A shop that reconciles its accounts: every change calls `reconcile(account)` with "rerun", while workers are killed.

    python -m tests.unique.shop --seconds 60

For every account no two runs may overlap, the last change must be seen by a run that started after it, and the runs have to be
far fewer than the calls.
"""

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from fastq import FastQ, Unique
from fastq.keys import queue_keys
from tests.support.ledger import Ledger, Reading
from tests.support.process import Child, script, wait_until
from tests.support.servers import Server
from tests.unique.stage import idle

ACCOUNTS, PRODUCERS, PROCESSES, WORKERS = 50, 20, 2, 2
CHANGES = "FASTQ_TEST_CHANGES"


def build(url: str, namespace: str) -> FastQ:
    """The shop's program."""
    app = FastQ(url, namespace=namespace, lease=1)

    @app.task(name="reconcile", unique=Unique(ttl=3600, key="account", on_conflict="rerun"), retries=5)
    async def reconcile(account: str) -> None:
        with Ledger.here().run(account):
            await asyncio.sleep(random.uniform(0.02, 0.1))
            if random.random() < 0.02:
                raise RuntimeError("the bank does not answer")

    return app


def work(url: str, namespace: str) -> None:
    """A worker's process."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    build(url, namespace).worker(concurrency=20, grace=0).run()


def produce(url: str, namespace: str, path: str, seconds: float) -> None:
    """A process of producers: each notes a change, and then calls."""
    ledger = Ledger(path)
    reconcile: Any = build(url, namespace).tasks["reconcile"]
    until = time.monotonic() + seconds

    def run() -> None:
        while time.monotonic() < until:
            account = f"a{random.randrange(ACCOUNTS)}"
            ledger.start(account)
            reconcile.enqueue(account)
            time.sleep(random.uniform(0, 0.01))

    threads = [threading.Thread(target=run) for _ in range(PRODUCERS // PROCESSES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("produced")


_START = """
from tests.unique import shop
{call}
"""


def _start(call: str, *args: str, env: Mapping[str, str] | None = None) -> Child:
    return script(_START.format(call=call), *args, env=env)


@dataclass(frozen=True)
class Verdict:
    """What came of a day in the shop."""

    calls: int
    runs: int
    killed: int
    overlaps: int
    unseen: list[str]  # accounts whose last change no run has seen

    @property
    def good(self) -> bool:
        """Whether all holds."""
        return not self.overlaps and not self.unseen and self.calls >= ACCOUNTS and self.runs * 3 < self.calls

    def __str__(self) -> str:
        told = f"{self.calls} calls, {self.runs} runs, {self.killed} workers killed"
        return f"{told}; {self.overlaps} overlaps, {len(self.unseen)} accounts whose last change was not seen"


def run(url: str, namespace: str, folder: Path, client: redis.Redis, *, seconds: float) -> Verdict:
    """Open the shop for so long, wait until all is done, and look."""
    runs, changes = Ledger(folder / "runs"), Ledger(folder / "changes")
    keys = queue_keys(namespace, "default")
    workers: list[Child] = []
    killed = 0

    def hire() -> None:
        workers.append(_start("shop.work(*sys.argv[1:])", url, namespace, env=runs.environment))
        workers[-1].wait_line("serves", 30)

    for _ in range(WORKERS):
        hire()
    call = "shop.produce(*sys.argv[1:4], float(sys.argv[4]))"
    producers = [_start(call, url, namespace, str(changes.path), str(seconds)) for _ in range(PROCESSES)]
    try:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(random.uniform(0.5, 1.5))  # how long it takes until a worker is killed is the case itself
            victim = workers.pop(0)
            victim.kill()
            victim.close()
            killed += 1
            hire()
        for producer in producers:
            producer.wait_line("produced", 60)

        wait_until(lambda: idle(client, keys), 60)
    finally:
        for child in (*workers, *producers):
            child.close()
    return judge(runs.read(), changes.read(), killed)


def judge(runs: Reading, changes: Reading, killed: int) -> Verdict:
    """What the two ledgers say."""
    last_change: dict[str, int] = {}
    for change in changes.runs:
        last_change[change.key] = max(change.started, last_change.get(change.key, 0))
    last_run: dict[str, int] = {}
    for one in runs.runs:
        if one.ended is not None:
            last_run[one.key] = max(one.started, last_run.get(one.key, 0))
    unseen = [account for account, changed in last_change.items() if last_run.get(account, 0) < changed]
    return Verdict(len(changes.runs), len(runs.runs), killed, len(runs.overlaps()), unseen)


def main() -> None:
    """Open the shop."""
    parser = argparse.ArgumentParser(description="Reconcile accounts while workers are killed.")
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    with Server("redis7") as server, tempfile.TemporaryDirectory() as folder:
        verdict = run(server.url, "shop", Path(folder), server.client(), seconds=options.seconds)
    print(verdict)
    sys.exit(not verdict.good)


if __name__ == "__main__":
    main()
