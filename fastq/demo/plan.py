"""What the demo does, worked out from one number, in the same way by the producer and by each worker."""
from __future__ import annotations

from dataclasses import dataclass

RETRIES = 3
SINGLES_EVERY = 0.02  # seconds
MOST_SINGLES = 10_000


@dataclass(frozen=True)
class Plan:
    """How many jobs there are of each kind: `jobs` plain ones, and the others in proportion."""

    jobs: int

    @property
    def plain(self) -> int:
        """Jobs without anything to them, enqueued in bulk."""
        return self.jobs

    @property
    def unique(self) -> int:
        """Jobs that are enqueued twice each: the second call of each is to be refused."""
        return max(10, self.jobs // 10)

    @property
    def delayed(self) -> int:
        """Jobs that run at a time of their own."""
        return max(10, self.jobs // 100)

    @property
    def failing(self) -> int:
        """Jobs whose first attempts fail."""
        return max(20, self.jobs // 100)

    @property
    def dead(self) -> int:
        """The first of the failing ones, of which every attempt fails."""
        return self.failing // 20

    def failures(self, number: int) -> int:
        """How many attempts of a failing job fail."""
        return RETRIES + 1 if number < self.dead else 1 + number % 2

    def attempts(self, number: int) -> int:
        """How often a failing job runs."""
        return min(self.failures(number), RETRIES) + 1

    @property
    def runs(self) -> int:
        """How often anything runs, but for the single jobs, of which there are as many as there is time for."""
        attempts = sum(self.attempts(number) for number in range(self.failing))
        return self.plain + self.unique + self.delayed + attempts
