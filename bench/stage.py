"""The stage that figures are measured on: a private server, and what was measured in the present round."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.children import Child
from bench.meter import STRIDE, Meter
from bench.tasks import noop, work
from tests.support.servers import Server

REFERENCE = Path(__file__).parent / "reference"
SLOTS = 100
DRAIN_TIMEOUT = 120.0  # seconds
KEYS = noop.route.keys


class Stage:
    """A private server, for the time of a `with`; without persistence, or with an append-only file that is synced every second.

    `scale` makes every load smaller (0.25: a quarter of the jobs). Figures that one load brings about together are measured
    once a round.
    """

    def __init__(self, scale: float = 1.0, *, aof: bool = False) -> None:
        self._scale = scale
        # A rewrite of the file would fall into one measurement or the other.
        self._server = Server(aof="everysec" if aof else None, config={"auto-aof-rewrite-percentage": 0})
        self._redis = self._server.client()
        self._round: dict[str, Any] = {}

    @property
    def url(self) -> str:
        """The server's address."""
        return self._server.url

    def jobs(self, full: int) -> int:
        """How many jobs to take, where `full` are taken at scale 1; whole thousands."""
        return max(2 * STRIDE, round(full * self._scale / STRIDE) * STRIDE)

    def new_round(self) -> None:
        """Forget what was measured."""
        self._round.clear()

    def once(self, name: str, measure: Callable[[], Any]) -> Any:
        """What `measure` returned in this round."""
        if name not in self._round:
            self._round[name] = measure()
        return self._round[name]

    # --- the server

    def clear(self) -> None:
        """Empty the server."""
        self._redis.flushall()

    def reset_statistics(self) -> None:
        """Let `commands()` begin anew."""
        self._redis.config_resetstat()

    def cpu_seconds(self) -> float:
        """What the server's main thread has used so far."""
        info = self._redis.info("cpu")
        return float(info["used_cpu_sys_main_thread"] + info["used_cpu_user_main_thread"])

    def used_bytes(self) -> int:
        """The memory that the server uses."""
        return int(self._redis.info("memory")["used_memory"])

    def waiting_entries(self) -> int:
        """Entries of the queue that are not settled."""
        return int(self._redis.xlen(KEYS.stream))

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._server.pid

    def commands(self) -> dict[str, tuple[int, float]]:
        """Calls and microseconds of each command since the last reset, those inside scripts too."""
        stats = self._redis.info("commandstats")
        return {name.removeprefix("cmdstat_"): (row["calls"], row["usec"]) for name, row in stats.items()}

    def workers(self) -> int:
        """How many workers have joined the queue."""
        return int(self._redis.zcard(KEYS.consumers))

    # --- the load

    def worker(self, meter: Meter) -> Child:
        """A worker process that tells `meter`."""
        return Child(work, self.url, meter=meter.path, concurrency=SLOTS)

    @contextlib.contextmanager
    def crew(self, meter: Meter, count: int) -> Iterator[Callable[[], None]]:
        """So many worker processes that have joined; gives what raises when one of them has ended."""
        with contextlib.ExitStack() as stack:
            children = [stack.enter_context(self.worker(meter)) for _ in range(count)]

            def alive() -> None:
                for child in children:
                    child.check()

            meter.wait(lambda: self.workers() == count, alive=alive, timeout=DRAIN_TIMEOUT)
            yield alive

    def drain(self, jobs: int) -> tuple[float, float]:
        """Jobs a second that one new worker process does of the `jobs` that wait, from the first until all are settled.

        And the seconds of CPU that it takes per job. Ahead of those jobs there has to be one of `tasks.first`.
        """
        with Meter() as meter:
            with self.worker(meter) as worker:
                meter.wait(lambda: not self.waiting_entries(), alive=worker.check, timeout=DRAIN_TIMEOUT)
                rate = jobs / (time.monotonic() - meter.first)
            return rate, meter.cpu_seconds / jobs

    def reference(self, script: str, *arguments: object) -> str:
        """What a script of bench/reference prints, run on this server."""
        port = re.search(r":(\d+)/", self.url)
        assert port, f"{self.url} has no port"
        command = [sys.executable, str(REFERENCE / script), port[1], *map(str, arguments)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def close(self) -> None:
        """End the server."""
        self._server.close()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
