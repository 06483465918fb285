"""Every error that fastq raises.

    FastQError
    ├── ConfigError (ValueError)          a name, URL, option or declaration that cannot work
    │   └── UniqueConfigError             a `Unique(...)` that cannot work
    ├── UnknownTaskError (LookupError)    no task of that name in this program
    ├── PayloadError (TypeError)          arguments that cannot be encoded, or do not fit the task
    ├── AlreadyEnqueued                   a normal outcome: the job is there already
    │   ├── DuplicateJobError             its lock is held
    │   └── JobIDConflictError            its job_id is in use
    ├── QueueFull                         the queue holds `max_queue` jobs
    ├── BulkError                         a bulk enqueue that ended early
    ├── BrokerError                       Redis could not be reached, or answered with an error
    ├── JobFailed                         the job whose result was asked for has failed
    ├── ResultTimeout (TimeoutError)      the result did not come in time
    └── ResultUnavailable                 the result will never come
"""
from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fastq.job import BulkResult, Job

__all__ = [
    "AlreadyEnqueued",
    "BrokerError",
    "BulkError",
    "ConfigError",
    "DuplicateJobError",
    "FastQError",
    "JobFailed",
    "JobIDConflictError",
    "PayloadError",
    "QueueFull",
    "ResultTimeout",
    "ResultUnavailable",
    "UniqueConfigError",
    "UnknownTaskError",
]


class FastQError(Exception):
    """The base of all errors of fastq."""


class ConfigError(FastQError, ValueError):
    """A name, URL, option or declaration that cannot work. Raised where it is written, before Redis is touched."""


class UniqueConfigError(ConfigError):
    """A `Unique(...)` that cannot work, such as one without a TTL."""


class UnknownTaskError(FastQError, LookupError):
    """No task of that name is registered in this program. `name` is what was asked for."""

    def __init__(self, message: str, *, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class PayloadError(FastQError, TypeError):
    """Arguments that cannot be encoded, or that do not fit the task.

    `path` leads to the value at fault, such as `order.items[3]`; it is empty when the call as a whole is at fault.
    """

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class AlreadyEnqueued(FastQError):
    """The job is there already: a normal outcome, not a fault.

    `job_uid` is the uid of the job that holds the lock or the id, `queue` its queue, and `expires_in` the seconds until
    it is free at the latest.
    """

    def __init__(self, message: str, *, job_uid: str, queue: str, expires_in: float) -> None:
        super().__init__(message)
        self.job_uid = job_uid
        self.queue = queue
        self.expires_in = expires_in


class DuplicateJobError(AlreadyEnqueued):
    """A unique job that is the same holds the lock."""


class JobIDConflictError(AlreadyEnqueued):
    """A job with the same `job_id` is in the queue, or ended less than its `retention` ago."""


class QueueFull(FastQError):
    """The queue holds `max_queue` jobs; nothing was enqueued. Try again later, or raise the bound.

    `queue` is its name and `waiting` how many jobs it held.
    """

    def __init__(self, message: str, *, queue: str = "", waiting: int = 0) -> None:
        super().__init__(message)
        self.queue = queue
        self.waiting = waiting


class BulkError(FastQError):
    """A bulk enqueue that ended early, by a bad item or a lost connection; `__cause__` says why.

    `index` is the place of the first item that is not in for certain, `result` tells what is in for certain, and
    `uncertain` are the places of the items that may be in, because only the reply was lost (empty if there are none).
    """

    def __init__(self, message: str, *, index: int, result: BulkResult, uncertain: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.index = index
        self.result = result
        self.uncertain = uncertain


class BrokerError(FastQError):
    """Redis could not be reached, or answered with an error, which is the `__cause__`.

    After an enqueue `job` is the handle of the job, and `maybe_enqueued` says whether the job may be in although no
    reply came. `retry()` and `await aretry()` enqueue the same job, with the same uid and key, once more.
    """

    def __init__(self, message: str, *, maybe_enqueued: bool = False) -> None:
        super().__init__(message)
        self.maybe_enqueued = maybe_enqueued
        self.lane: tuple[bytes, int] | None = None  # where the server would know this very call again
        self.job: Job | None = None
        self._again: tuple[Callable[[], Job], Callable[[], Awaitable[Job]]] | None = None

    def concerns(self, job: Job, again: Callable[[], Job], aagain: Callable[[], Awaitable[Job]]) -> None:
        """Note which job the error is about, and how it is enqueued once more (for the producer)."""
        self.job = job
        self._again = again, aagain

    def retry(self) -> Job:
        """Enqueue the same job once more and return its handle.

        A job with a lock or a `job_id` cannot get in twice this way, not even if it has ended meanwhile (within ten minutes, and
        unless it was merged with concurrent `aenqueue` calls: then its lock alone guards it). A lone plain job of which only the
        reply was lost can: both copies carry one uid. Raises what `enqueue` raises; RuntimeError when the error is not of an
        enqueue.
        """
        return self._repeat[0]()

    async def aretry(self) -> Job:
        """`retry()` for async code."""
        return await self._repeat[1]()

    @property
    def _repeat(self) -> tuple[Callable[[], Job], Callable[[], Awaitable[Job]]]:
        if self._again is None:
            raise RuntimeError("this error is not of a single enqueue: there is nothing to repeat")
        return self._again


class JobFailed(FastQError):
    """The job whose result was asked for has not succeeded.

    `state` says how it ended (dead, dropped, cancelled or expired) and `error` is the text that its last attempt left.
    """

    def __init__(self, message: str, *, job_uid: str = "", state: str = "", error: str = "", **details: Any) -> None:
        super().__init__(message)
        self.job_uid = job_uid
        self.state = state
        self.error = error
        self.details = details


class ResultTimeout(FastQError, TimeoutError):
    """The result did not come in time; the job may still end."""


class ResultUnavailable(FastQError):
    """The result will never come: the job keeps none, it has expired, or the job is unknown."""
