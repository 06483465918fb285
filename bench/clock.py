"""Benchmarks of what was measured elsewhere: in a child, or by the jobs themselves."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

ROUNDS = 3


class Timer:
    """A timer for pytest-benchmark that moves only when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Clock:
    """Hands measured times to pytest-benchmark as if they had passed just now.

    >>> def test_drain(stage, clock):
    ...     clock.rate(lambda: stage.drain(100_000)[0], jobs=100_000)
    """

    def __init__(self, timer: Timer, benchmark: Any) -> None:
        self._timer = timer
        self._benchmark = benchmark

    def rate(self, measure: Callable[[], float], jobs: int) -> None:
        """Benchmark what returns jobs a second, as the seconds that `jobs` of them take."""
        rates: list[float] = []

        def measured() -> float:
            rates.append(measure())
            return jobs / rates[-1]

        self.seconds(measured)
        self._benchmark.extra_info.update(jobs=jobs, jobs_per_second=round(statistics.median(rates)))

    def seconds(self, measure: Callable[[], float]) -> None:
        """Benchmark what returns seconds."""

        def run() -> None:
            self._timer.now += measure()

        self._benchmark.pedantic(run, rounds=ROUNDS)
