"""How long a job waits for its start: at 200 jobs a second, enqueued one by one, and at half of what a worker can do."""

from __future__ import annotations

from bench import bare, producers
from bench.children import Child, call
from bench.figure import Figure
from bench.figures import loads
from bench.meter import Meter
from bench.stage import Stage
from bench.tasks import LOOKED_AT

PER_SECOND = 200
JOBS = 2000
BUSY = 4  # seconds at half of the most


def delays(stage: Stage, jobs: int = JOBS) -> list[float]:
    """Seconds from enqueue to start, sorted."""

    def run() -> list[float]:
        stage.clear()
        with Meter() as meter, stage.worker(meter) as worker:
            call(producers.steady, stage.url, jobs=1, per_second=PER_SECOND)
            meter.wait(lambda: meter.delay_count == 1, alive=worker.check, timeout=30)
            call(producers.steady, stage.url, jobs=jobs, per_second=PER_SECOND)
            meter.wait(lambda: meter.delay_count == jobs + 1, alive=worker.check, timeout=30)
            return meter.delays

    found: list[float] = stage.once("delays", run)
    return found


def _bare(stage: Stage) -> float:
    """p50 in ms without a queue: from a socket through the server to a socket."""
    stage.clear()
    with Child(bare.receive, stage.url, jobs=JOBS) as receiver:
        call(bare.produce, stage.url, jobs=JOBS, per_second=PER_SECOND)
        return 1000 * percentile(receiver.result(), 0.5)


def _half_way(stage: Stage) -> float:
    """p99 in ms, of jobs that come in bulk at half the rate at which one worker drains them."""
    rate = loads.bulk(stage).rates.drain / 2
    jobs = int(stage.jobs(BUSY * 1000) / 1000 * rate) // LOOKED_AT * LOOKED_AT
    stage.clear()
    with Meter() as meter, stage.crew(meter, 1) as alive:
        call(producers.paced, stage.url, jobs=jobs, per_second=rate)
        meter.wait(lambda: meter.delay_count == jobs // LOOKED_AT, alive=alive, timeout=30)
        return 1000 * percentile(meter.delays, 0.99)


def percentile(values: list[float], share: float) -> float:
    """Of sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))]


FIGURES = [
    Figure(
        f"latency, p{round(100 * share)}",
        "ms",
        lambda stage, share=share: 1000 * percentile(delays(stage), share),  # type: ignore[misc]
        less_is_better=True,
        bounds={6: bound},
        steady=False,
    )
    for share, bound in ((0.5, 0.5), (0.99, 1.5))
]
FIGURES.append(Figure("latency, bare sockets", "ms", _bare, bounds={6: 0}, steady=False))  # to be reported only
FIGURES.append(Figure("latency at half, p99", "ms", _half_way, less_is_better=True, bounds={6: 20}, steady=False))
