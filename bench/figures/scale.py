"""What a job costs when there are many of them, many workers, or a worker has run for long: it should be the same."""

from __future__ import annotations

from bench import producers
from bench.children import call, memory_bytes
from bench.figure import Figure
from bench.meter import Meter
from bench.stage import DRAIN_TIMEOUT, Stage
from bench.tasks import counted

MANY, FEW = 5_000_000, 200_000  # jobs that wait
SHARE = 100_000  # of them, while which are run the server is looked at
CROWD = 64  # workers
LONG = 10_000_000  # jobs of one worker


def _fill(stage: Stage, jobs: int) -> None:
    stage.clear()
    call(producers.bulk, stage.url, task=counted.name, jobs=jobs)


def _server_beside(stage: Stage, waiting: int) -> float:
    """Microseconds of the server for a job that one worker runs while so many wait."""
    _fill(stage, max(waiting, 2 * SHARE))
    with Meter() as meter, stage.worker(meter) as worker:
        meter.wait(lambda: meter.done > 0, alive=worker.check, timeout=DRAIN_TIMEOUT)
        cpu, done = stage.cpu_seconds(), meter.done
        meter.wait(lambda: meter.done >= done + SHARE, alive=worker.check, timeout=DRAIN_TIMEOUT)
        return (stage.cpu_seconds() - cpu) / (meter.done - done) * 1e6


def _many(stage: Stage) -> float:
    return _server_beside(stage, stage.jobs(MANY))


def _few(stage: Stage) -> float:
    return _server_beside(stage, FEW)


def _server_of(stage: Stage, workers: int) -> float:
    """Microseconds of the server for a job that waits for one of so many workers."""
    stage.clear()
    jobs = stage.jobs(1_000_000)
    with Meter() as meter, stage.crew(meter, workers) as alive:
        call(producers.bulk, stage.url, task=counted.name, jobs=1000)
        meter.wait(lambda: not stage.waiting_entries(), alive=alive, timeout=DRAIN_TIMEOUT)
        cpu = stage.cpu_seconds()
        call(producers.bulk, stage.url, task=counted.name, jobs=jobs)
        meter.wait(lambda: not stage.waiting_entries(), alive=alive, timeout=DRAIN_TIMEOUT)
        return (stage.cpu_seconds() - cpu) / jobs * 1e6


def _crowd(stage: Stage) -> float:
    return _server_of(stage, CROWD)


def _alone(stage: Stage) -> float:
    return _server_of(stage, 1)


def _worker_growth(stage: Stage) -> float:
    """Bytes by which a worker grows per job, from the first tenth of very many on."""
    jobs = stage.jobs(LONG)
    _fill(stage, jobs)
    with Meter() as meter, stage.worker(meter) as worker:
        meter.wait(lambda: meter.done >= jobs // 10, alive=worker.check, timeout=DRAIN_TIMEOUT)
        before, done = memory_bytes("VmRSS", worker.pid), meter.done
        meter.wait(lambda: not stage.waiting_entries(), alive=worker.check, timeout=DRAIN_TIMEOUT)
        return (memory_bytes("VmRSS", worker.pid) - before) / (jobs - done)


FIGURES = [
    Figure("server, 5,000,000 wait", "us/job", _many, _few, less_is_better=True, bounds={6: 1.25}, steady=False),
    Figure("server, 64 workers", "us/job", _crowd, _alone, less_is_better=True, bounds={6: 1.25}, once=True, steady=False),
    Figure("memory of a worker", "B/job", _worker_growth, less_is_better=True, bounds={6: 0.5}, once=True, steady=False),
]
