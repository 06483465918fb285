"""What a job sees of itself while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic

from fastq.job import uid_string
from fastq_ext.runner import Run, current_run


@dataclass(frozen=True, slots=True)
class HeldLock:
    """The lock of the job that runs: its key, and the seconds that it would live on without being extended."""

    key: str
    expires_in: float


class CurrentJob:
    """The job that runs here; made by `current_job()`.

    Times are aware, in UTC. `fence` grows with every delivery of the queue: a system that is written to can refuse
    anything lower than it has seen, and so a frozen worker that wakes up late.
    """

    __slots__ = ("_run",)

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def uid(self) -> str:
        """The job's identity in UUID form."""
        return uid_string(self._run.message.uid)

    @property
    def job_id(self) -> str | None:
        """The id that its caller gave it, or None."""
        return self._run.message.job_id or None

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._run.attempt

    @property
    def task(self) -> str:
        """The name of its task."""
        return self._run.message.task

    @property
    def queue(self) -> str:
        """The queue that it came from."""
        return str(self._run.holding.keys.queue)

    @property
    def enqueued_at(self) -> datetime:
        """When it was enqueued, by the server's clock."""
        return datetime.fromtimestamp(self._run.enqueued_ms / 1000, UTC)

    @property
    def deadline(self) -> datetime | None:
        """When this attempt will be cancelled; None: never."""
        if not self._run.timeout:
            return None
        return datetime.now(UTC) + timedelta(seconds=self._run.begun + self._run.timeout - monotonic())

    @property
    def lock(self) -> HeldLock | None:
        """Its lock, or None."""
        message = self._run.message
        if not message.lock_key:
            return None
        ends = (message.due_ms or message.enqueued_at) + message.lock_ttl_ms
        left = max(0.0, (ends - datetime.now(UTC).timestamp() * 1000) / 1000)
        return HeldLock(message.lock_key.partition(b":")[2].decode(), left)

    @property
    def fence(self) -> int:
        """Greater than that of every earlier delivery of the queue."""
        return self._run.fence

    @property
    def cancelled(self) -> bool:
        """Whether the job was told to stop: cancelled, out of time, or its worker is ending. A thread has to look."""
        return self._run.reason is not None or not self._run.alive

    def __repr__(self) -> str:
        return f"<CurrentJob {self.task} {self.uid} attempt {self.attempt}>"


def current_job() -> CurrentJob:
    """The job that runs here, in coroutines and threads alike. Raises RuntimeError outside of one.

    >>> current_job().attempt  # doctest: +SKIP
    1
    """
    run = current_run()
    if run is None:
        raise RuntimeError("current_job() is for code that runs within a job")
    return CurrentJob(run)
