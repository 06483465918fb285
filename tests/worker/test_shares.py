"""Queues by strict order and by weight: who gets how much, and who waits for whom."""

import time
from collections import Counter
from pathlib import Path

import pytest

from fastq.worker.shares import Shares
from tests.support import process
from tests.worker.conftest import Bench


def flood(bench: Bench, queue: str, jobs: int, seconds: float) -> None:
    bench.task["nap"].using(queue=queue).enqueue_many([(f"{queue}{i}", seconds) for i in range(jobs)])


@pytest.mark.parametrize(("seconds", "concurrency"), [(0.0, 100), (0.01, 10), (0.02, 1)])
def test_full_queues_get_their_weights(bench: Bench, seconds: float, concurrency: int) -> None:
    jobs = {1: 300, 10: 6000, 100: 30_000}[concurrency]  # many times what a worker has at hand, which comes in whole frames
    for queue in ("high", "low"):
        flood(bench, queue, jobs, seconds)
    bench.start(queues={"high": 5, "low": 1}, concurrency=concurrency, serves=False)

    enough = jobs * 2 // 3
    process.wait_until(lambda: len(bench.ledger.read().runs) >= enough, timeout=60)

    runs = sorted(bench.ledger.read().runs, key=lambda run: run.started)[:enough]
    counts = Counter(run.key.rstrip("0123456789") for run in runs)
    assert counts["high"] / counts["low"] == pytest.approx(5, rel=0.1), counts


def test_a_queue_that_was_empty_does_not_catch_up() -> None:
    shares = Shares({"high": 1, "low": 1})
    shares.found_empty("low")
    shares.took("high", 1000)

    shares.took("low", 1)

    assert shares.first(["high", "low"]) == "high"


def test_an_idle_queue_leaves_its_share_to_the_others(bench: Bench) -> None:
    flood(bench, "low", 1000, 0.0)

    bench.burst(queues={"high": 1000, "low": 1})

    assert len(bench.ledger.read().ends) == 1000


def test_a_full_low_queue_delays_a_high_job_by_no_more_than_one_running_job(bench: Bench, tmp_path: Path) -> None:
    flood(bench, "low", 300, 0.5)
    bench.start(queues=["high", "low"], concurrency=1)
    bench.wait_started("low0")
    overtaken_by = []
    for number in range(5):
        bench.task["note"].using(queue="high").enqueue(f"high{number}")
        enqueued = time.monotonic_ns()
        bench.wait_ended(f"high{number}")
        runs = bench.ledger.read().runs
        started = next(run.started for run in runs if run.key == f"high{number}")
        overtaken_by.append(sum(enqueued < run.started < started for run in runs if run.key.startswith("low")))

    assert max(overtaken_by) <= 1, overtaken_by  # one may just have got its slot
