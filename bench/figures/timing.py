"""Time of one call, for what takes less than a few microseconds."""

from __future__ import annotations

import time
import timeit
from typing import Any

SECONDS = 0.001  # of one series: short, so that many of them run undisturbed on a busy machine too
SERIES = 150


def nanoseconds(statement: str, **names: Any) -> float:
    """Nanoseconds of CPU of a statement that uses `names`: of many short series the fastest."""
    timer = timeit.Timer(statement, timer=time.process_time, globals=names)
    number = max(1, round(100 * SECONDS / timer.timeit(100)))
    return min(timer.repeat(SERIES, number)) / number * 1e9
