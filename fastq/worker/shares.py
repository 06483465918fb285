"""Shares: which of several weighted queues is to be read next, so that over time each gets jobs through by its weight.

A queue's progress is what was taken from it, divided by its weight; the one that is furthest behind comes first. One that was
empty does not catch up on what it could have had meanwhile: it goes on from where the others are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping


class Shares:
    """The progress of each queue. `weights` are relative to one another.

    >>> shares = Shares({"high": 5, "default": 1})
    >>> shares.part("high", ["high", "default"], 12)
    10
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        self._progress = dict.fromkeys(weights, 0.0)
        self._idle: set[str] = set()
        self._now = 0.0  # the progress of the one that is furthest behind, of those that have jobs

    def first(self, queues: Collection[str]) -> str:
        """The one of these that is furthest behind."""
        return min(queues, key=lambda queue: self._progress[queue])

    def part(self, queue: str, queues: Collection[str], jobs: int) -> int:
        """How many of so many jobs are this one's, of these."""
        return max(1, math.ceil(jobs * self._weights[queue] / sum(self._weights[one] for one in queues)))

    def took(self, queue: str, jobs: int) -> None:
        """Jobs of it were taken, or, where negative, given back."""
        if queue in self._idle:
            self._idle.discard(queue)
            self._progress[queue] = max(self._progress[queue], self._now)
        self._progress[queue] += jobs / self._weights[queue]
        self._now = max(self._now, min(done for one, done in self._progress.items() if one not in self._idle))

    def found_empty(self, queue: str) -> None:
        """It has no jobs."""
        self._idle.add(queue)
