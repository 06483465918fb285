"""A steady pace."""

from __future__ import annotations

import time
from collections.abc import Iterator


def pace(rounds: int, per_second: float) -> Iterator[int]:
    """The number of each round, when it is due; late ones follow at once."""
    begun = time.monotonic()
    for number in range(rounds):
        time.sleep(max(0.0, begun + number / per_second - time.monotonic()))
        yield number
