"""What happens after a failed attempt: the retry policies, and the signals that a task can raise."""
from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Protocol, TypeAlias

from fastq.config import check_count, check_seconds
from fastq.errors import ConfigError

MAX_RETRIES = 65_534  # a message counts its attempts in 16 bits

RetryFunction: TypeAlias = Callable[[int, BaseException], "float | timedelta | None"]
Retries: TypeAlias = "int | Backoff | RetryFunction"


class Retry(Exception):
    """Raise it in a task to end the attempt and try again.

    The attempt counts: past the last one the job is dead. `delay` is in seconds or a timedelta; None leaves it to the
    task's policy.
    """

    def __init__(self, delay: float | timedelta | None = None) -> None:
        self.delay = None if delay is None else check_seconds("delay", delay)
        super().__init__("as the task's policy says" if self.delay is None else f"in {self.delay:g} s")


class Drop(Exception):
    """Raise it in a task to end the job without error; it will not be tried again."""


class RetryPolicy(Protocol):
    """Decides what follows a failed attempt."""

    def next_delay(self, attempt: int, error: BaseException) -> float | None:
        """Seconds until the next attempt, or None: the job is dead. `attempt` is the one that failed, from 1."""

    def limited(self, retries: int) -> RetryPolicy:
        """The same policy with another number of retries."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Retry with growing delays.

    The first retry waits `delay` seconds, each next one `factor` times longer, `max_delay` at most; `jitter` moves each
    by up to that share, so that jobs that failed together do not come back together. Only errors of the kinds in `on`
    are retried (empty: all), and none of the kinds in `giveup`. Raises ConfigError.

    >>> Backoff(retries=5, delay=2, jitter=0).next_delay(3, OSError())
    8.0
    """

    retries: int = 3
    delay: float | timedelta = 2.0
    factor: float = 2.0
    jitter: float = 0.1
    max_delay: float | timedelta = 600.0
    on: tuple[type[BaseException], ...] = field(default=())
    giveup: tuple[type[BaseException], ...] = field(default=())

    def __post_init__(self) -> None:
        check_count("retries", self.retries, most=MAX_RETRIES)
        object.__setattr__(self, "delay", check_seconds("delay", self.delay))
        object.__setattr__(self, "max_delay", check_seconds("max_delay", self.max_delay))
        if not _is_number(self.factor) or not 1 <= self.factor <= 1e6:
            raise ConfigError(f"factor={self.factor!r}: must be a number of at least 1")
        if not _is_number(self.jitter) or not 0 <= self.jitter <= 1:
            raise ConfigError(f"jitter={self.jitter!r}: must be a share of the delay, from 0 to 1")
        object.__setattr__(self, "on", _error_kinds("on", self.on))
        object.__setattr__(self, "giveup", _error_kinds("giveup", self.giveup))

    def next_delay(self, attempt: int, error: BaseException) -> float | None:
        """Seconds until the attempt after this one, or None: the job is dead."""
        if attempt > self.retries:
            return None
        if not self._retries(error):
            return None
        return min(self._nominal(attempt) * random.uniform(1 - self.jitter, 1 + self.jitter), self._cap)

    def longest_delays(self) -> float:
        """Seconds that all retries together wait at the most."""
        total = 0.0
        for attempt in range(1, self.retries + 1):
            nominal = min(self._nominal(attempt) * (1 + self.jitter), self._cap)
            if nominal == self._cap:  # and so are all that follow
                return total + nominal * (self.retries + 1 - attempt)
            total += nominal
        return total

    def limited(self, retries: int) -> Backoff:
        """The same delays with another number of retries."""
        return replace(self, retries=retries)

    def _retries(self, error: BaseException) -> bool:
        if isinstance(error, Retry):  # the task asks for another attempt, whatever kinds of errors are retried
            return True
        return not isinstance(error, self.giveup) and (not self.on or isinstance(error, self.on))

    @property
    def _cap(self) -> float:
        return self.max_delay  # type: ignore[return-value]  # a float since __post_init__

    def _nominal(self, attempt: int) -> float:
        delay: float = self.delay  # type: ignore[assignment]  # a float since __post_init__
        if not delay:
            return 0.0
        try:
            return min(delay * self.factor ** (attempt - 1), self._cap)
        except OverflowError:
            return self._cap


@dataclass(frozen=True, slots=True)
class CustomRetry:
    """A policy of the user's own: `function(attempt, error)` gives the seconds to wait, or None to give up."""

    function: RetryFunction
    retries: int = MAX_RETRIES

    def next_delay(self, attempt: int, error: BaseException) -> float | None:
        """What the function says. Raises what it raises, and ConfigError when its answer is no duration."""
        if attempt > self.retries:
            return None
        delay = self.function(attempt, error)
        return None if delay is None else check_seconds("the retry function's answer", delay)

    def limited(self, retries: int) -> CustomRetry:
        """The same function, asked for no more than so many retries."""
        return replace(self, retries=retries)


def retry_policy(retries: Any) -> Backoff | CustomRetry:
    """Make a policy of what `retries=` was given: a number, a Backoff or a function. Raises ConfigError."""
    if isinstance(retries, Backoff):
        return retries
    if isinstance(retries, int):
        return Backoff(retries)
    if callable(retries):
        return CustomRetry(retries)
    raise ConfigError(f"retries={retries!r}: give a number, a Backoff, or a function of (attempt, error)")


def retries_to_send(retries: Any) -> int | dict[str, float]:
    """How `using(retries=...)` travels with a job. Raises ConfigError for what cannot travel."""
    policy = retry_policy(retries)
    if isinstance(retries, int):
        return retries
    if isinstance(policy, CustomRetry) or policy.on or policy.giveup:
        raise ConfigError("using(retries=...) travels with the job: a number or a Backoff without on= and giveup=")
    return {name: getattr(policy, name) for name in ("retries", "delay", "factor", "jitter", "max_delay")}


def retries_as_sent(sent: object, policy: RetryPolicy) -> RetryPolicy:
    """The policy of a job whose message carries an override: a number keeps the delays of its task's own policy.

    Raises ConfigError when the override cannot be read.
    """
    if isinstance(sent, Mapping):
        try:
            return Backoff(**sent)
        except TypeError as error:
            raise ConfigError(f"the job's retries={sent!r} cannot be read: {error}") from None
    return policy.limited(check_count("retries", sent, most=MAX_RETRIES))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _error_kinds(what: str, kinds: Any) -> tuple[type[BaseException], ...]:
    if isinstance(kinds, type):
        kinds = (kinds,)
    found: tuple[type[BaseException], ...] = tuple(kinds)
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in found):
        raise ConfigError(f"{what}={found!r}: give exception classes")
    return found
