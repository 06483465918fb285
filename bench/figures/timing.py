"""Time of one call, for what takes less than a microsecond or two."""

from __future__ import annotations

import timeit
from typing import Any

SECONDS = 0.02  # of one series
SERIES = 7


def nanoseconds(statement: str, **names: Any) -> float:
    """Nanoseconds of a statement that uses `names`: of some series the fastest, which others disturbed least."""
    timer = timeit.Timer(statement, globals=names)
    timer.timeit(1000)
    number = max(1, round(1000 * SECONDS / timer.timeit(1000)))
    return min(timer.repeat(SERIES, number)) / number * 1e9
