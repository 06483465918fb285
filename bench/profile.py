"""Where the time of a job goes, in the process that is measured and in the server.

    python -m bench.profile drain          a worker and frames of 64 jobs
    python -m bench.profile lone           a worker and frames of one
    python -m bench.profile unique         a worker and unique jobs
    python -m bench.profile enqueue        enqueue_many; also: enqueue-unique, one-by-one, in-flight

Needs Linux and `perf` (it samples the CPU clock, so it works in virtual machines too). It takes hold of a process only
where the measurement begins: start-up is not in the figures. All are microseconds of CPU per job.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench import environment, producers
from bench.children import Child, call
from bench.meter import Meter
from bench.stage import Stage
from bench.tasks import noop, once

HERTZ = 999
JOBS = 400_000
Fill = Callable[[Stage, int], Any]


class Load(NamedTuple):
    """What is profiled: `run` does it, with the profilers in `watch(pid)`."""

    what: str
    run: Callable[[Stage, int, Callable[[int], Any]], None]
    share: float = 1.0  # of the jobs asked for


# --- the loads


def _producer(function: Callable[..., Any], **arguments: Any) -> Callable[[Stage, int, Callable[[int], Any]], None]:
    def run(stage: Stage, jobs: int, watch: Callable[[int], Any]) -> None:
        with Child(function, stage.url, hold=True, jobs=jobs, **arguments) as producer:
            producer.wait_frozen()
            stage.clear()
            stage.reset_statistics()
            with watch(producer.pid):
                producer.thaw()
                producer.result()

    return run


def _worker(fill: Callable[..., Any], **arguments: Any) -> Callable[[Stage, int, Callable[[int], Any]], None]:
    def run(stage: Stage, jobs: int, watch: Callable[[int], Any]) -> None:
        with Meter() as meter, stage.worker(meter) as worker:
            meter.wait(lambda: stage.workers() > 0, alive=worker.check, timeout=30)
            time.sleep(0.5)  # the rest of its start
            worker.freeze()
            call(fill, stage.url, jobs=jobs, **arguments)
            stage.reset_statistics()
            with watch(worker.pid):
                worker.thaw()
                _wait_empty(stage, worker, meter)

    return run


def _wait_empty(stage: Stage, worker: Child, meter: Meter) -> None:
    meter.wait(lambda: not stage.waiting_entries(), alive=worker.check, timeout=120)


LOADS = {
    "drain": Load("worker", _worker(producers.bulk, task=noop.name)),
    "lone": Load("worker", _worker(producers.lone), 0.5),
    "unique": Load("worker", _worker(producers.bulk, task=once.name), 0.5),
    "enqueue": Load("producer", _producer(producers.bulk, task=noop.name)),
    "enqueue-unique": Load("producer", _producer(producers.bulk, task=once.name), 0.5),
    "one-by-one": Load("producer", _producer(producers.one_by_one), 0.1),
    "in-flight": Load("producer", _producer(producers.in_flight, callers=100), 0.25),
}


# --- perf


@contextmanager
def recorded(pid: int, path: Path) -> Iterator[None]:
    """Sample a process for the time of a `with`."""
    command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(HERTZ), "-p", str(pid), "-o", str(path)]
    perf = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.5)  # it says nowhere that it has begun
    try:
        yield
    finally:
        perf.send_signal(signal.SIGINT)
        perf.wait()


def samples(path: Path) -> Counter[tuple[str, str]]:
    """Samples by (library, function)."""
    command = ["perf", "report", "-i", str(path), "--stdio", "-n", "-F", "sample,dso,sym"]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: Counter[tuple[str, str]] = Counter()
    for line in report.splitlines():
        if match := re.match(r" +(\d+) +(\S+) +\[.\] (.+?) *$", line):
            found[_library(match[2]), match[3]] += int(match[1])
    return found


def _library(name: str) -> str:
    if name.startswith("["):
        return "kernel"
    return "redis" if name.startswith("redis-") else name.split(".cpython")[0].split(".so")[0]


# ---


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser("python -m bench.profile", description="where the time of a job goes")
    parser.add_argument("load", choices=LOADS)
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"default: {JOBS}, or a share of it for slow loads")
    parser.add_argument("--top", type=int, default=30, help="functions to show (default: 30)")
    given = parser.parse_args(arguments)
    if shutil.which("perf") is None:
        parser.error("there is no perf here")
    environment.refuse_unfit_builds()
    load = LOADS[given.load]
    jobs = round(given.jobs * load.share)
    print(*environment.lines(), sep="\n")
    with tempfile.TemporaryDirectory(prefix="fastq-profile-") as folder, Stage() as stage:
        own, server = Path(folder, "own"), Path(folder, "server")

        @contextmanager
        def watch(pid: int) -> Iterator[None]:
            with recorded(pid, own), recorded(stage.pid, server):
                yield

        stage.clear()
        load.run(stage, jobs, watch)
        commands = stage.commands()
        _tell(load.what, samples(own), jobs, given.top)
        _tell("server", samples(server), jobs, given.top // 2)
    print("\nserver, by command (nested ones count within their script):   us/job   calls/1000 jobs")
    for name, (calls, microseconds) in sorted(commands.items(), key=lambda item: -item[1][1])[:10]:
        print(f"  {name:<58} {microseconds / jobs:9.3f} {calls / jobs * 1000:14.2f}")
    return 0


def _tell(what: str, found: Counter[tuple[str, str]], jobs: int, top: int) -> None:
    def per_job(count: int) -> float:
        return count / HERTZ / jobs * 1e6

    print(f"\n{what}: {per_job(found.total()):.3f} us of CPU a job")
    libraries: Counter[str] = Counter()
    for (library, _), count in found.items():
        libraries[library] += count
    for library, count in libraries.most_common(12):
        print(f"  {per_job(count):7.3f}  {library}")
    print(f"{what}, by function:")
    for (library, function), count in found.most_common(top):
        print(f"  {per_job(count):7.3f}  {library:<18} {function[:90]}")


if __name__ == "__main__":
    sys.exit(main())
