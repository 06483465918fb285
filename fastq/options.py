"""What a call can choose: the options of `using(...)`, and how they add to those of the task."""
from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypedDict

from fastq.config import DEFAULT_QUEUE, MAX_SECONDS, check_name, check_seconds
from fastq.errors import ConfigError, UniqueConfigError
from fastq.retry import Retries, retries_to_send
from fastq.unique import Unique

_JOB_ID_BYTES = 512


class CallOptions(TypedDict, total=False):
    """What `using(...)` takes."""

    delay: float | timedelta
    at: datetime
    queue: str
    job_id: str
    retention: float | timedelta
    unique: Unique | None
    retries: Retries
    timeout: float | timedelta | None
    expires: float | timedelta | None


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one call, checked. Times are in seconds, `at_ms` in milliseconds since 1970.

    `overrides` are those that belong to the worker's registration and so travel with the job: retries and timeout.
    """

    queue: str = DEFAULT_QUEUE
    unique: Unique | None = None
    delay: float = 0.0
    at_ms: int = 0
    job_id: str = ""
    retention: float = 0.0
    expires: float | None = None
    overrides: tuple[tuple[str, Any], ...] = ()

    def changed(self, changes: CallOptions) -> Options:
        """A copy with these changes. Raises ConfigError, also for an option that there is not."""
        refuse_unknown("option of using()", changes, CallOptions.__annotations__)
        if "delay" in changes and "at" in changes:
            raise ConfigError("delay= and at= exclude each other: the one counts from now, the other is a time")
        new: dict[str, Any] = {}
        overrides = dict(self.overrides)
        for name, value in changes.items():
            if name == "delay":
                new |= {"delay": check_seconds("delay", value), "at_ms": 0}
            elif name == "at":
                new |= {"delay": 0.0, "at_ms": _instant(value)}
            elif name == "retries":
                overrides["retries"] = retries_to_send(value)
            elif name == "timeout":
                overrides["timeout"] = check_timeout(value)
            else:
                new[name] = _CHECKS[name](value)
        options = replace(self, **new, overrides=tuple(overrides.items()))
        if options.job_id and options.unique is not None and options.unique.on_conflict != "raise":
            raise UniqueConfigError(
                f'job_id together with on_conflict="{options.unique.on_conflict}": the call could end in a job that has'
                " another id or none; leave one of the two away"
            )
        return options


def check_timeout(value: object) -> float | None:
    """Seconds per attempt, or None for no limit. Raises ConfigError."""
    return None if value is None else check_seconds("timeout", value, least=0.001)


def check_expires(value: object) -> float | None:
    """Seconds after which a job is not started any more, or None. Raises ConfigError."""
    return None if value is None else check_seconds("expires", value, least=0.001)


def check_unique(value: object) -> Unique | None:
    """A Unique or None. Raises UniqueConfigError for anything else, such as `unique=True`."""
    if value is not None and not isinstance(value, Unique):
        raise UniqueConfigError(f"unique={value!r}: give Unique(ttl=...), or None for jobs that are not unique")
    return value


def refuse_unknown(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ConfigError for a name that is not known, with the one that was probably meant."""
    known = sorted(known)
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            raise ConfigError(f"{name!r} is no {what}: {hint}")


def _instant(value: object) -> int:
    if not isinstance(value, datetime):
        raise ConfigError(f"at={value!r}: give an aware datetime (for seconds from now: delay=)")
    if value.utcoffset() is None:
        raise ConfigError(
            f"at={value!r} has no time zone, so producer and worker may read it differently: give an aware datetime,"
            " such as datetime.now(timezone.utc) + timedelta(hours=1)"
        )
    seconds = value.timestamp()
    if not 0 <= seconds <= 2 * MAX_SECONDS:
        raise ConfigError(f"at={value!r}: this is not within reach")
    return max(1, round(seconds * 1000))


def _job_id(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"job_id={value!r}: give a string that is not empty")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ConfigError(f"job_id={value!r} has a lone surrogate, which UTF-8 cannot hold") from None
    if size > _JOB_ID_BYTES:
        raise ConfigError(f"job_id={value[:40]!r}...: {size} bytes; at most {_JOB_ID_BYTES}")
    return value


_CHECKS = {
    "queue": lambda value: check_name("queue", value),
    "job_id": _job_id,
    "retention": lambda value: check_seconds("retention", value),
    "unique": check_unique,
    "expires": check_expires,
}
