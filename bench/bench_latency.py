"""From enqueue to start on an idle worker, at 200 jobs a second."""

from __future__ import annotations

import pytest

from bench.clock import Clock
from bench.figures.latency import delays, percentile
from bench.stage import Stage


@pytest.mark.parametrize("share", [0.5, 0.99], ids=["p50", "p99"])
def test_enqueue_to_start(stage: Stage, clock: Clock, share: float) -> None:
    def run() -> float:
        stage.new_round()
        return percentile(delays(stage, jobs=500), share)

    clock.seconds(run)
