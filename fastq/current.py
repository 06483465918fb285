"""What a job sees of itself while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic

from fastq.job import uid_string
from fastq_ext.runner import Run, current_run


@dataclass(frozen=True, slots=True)
class HeldLock:
    """The lock of the job that runs: its key, and the seconds that it lives on, under `renew` without being extended again.

    Both are told without asking Redis: whether the lock was lost meanwhile, `app.locks.get` tells.
    """

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
    def due_at(self) -> datetime:
        """From when on it could run: the end of its delay, or when it was enqueued."""
        message = self._run.message
        return datetime.fromtimestamp((message.due_ms or message.enqueued_at) / 1000, UTC)

    @property
    def deadline(self) -> datetime | None:
        """When this attempt will be cancelled; None: never."""
        if not self._run.timeout:
            return None
        return datetime.now(UTC) + timedelta(seconds=self._run.begun + self._run.timeout - monotonic())

    @property
    def headers(self) -> dict[str, str]:
        """What middleware gave it on its way, when it was enqueued."""
        headers = self._run.message.extras.get("headers", {})
        return dict(headers) if isinstance(headers, dict) else {}

    @property
    def lock(self) -> HeldLock | None:
        """The lock that it began with, or None for a job without one, or whose lock went at its start."""
        message, holding = self._run.message, self._run.holding
        if not message.lock_key or message.policy & 3 == 2:  # until="start"
            return None
        if self._run.renews:
            heart = holding.heart
            left = max(message.lock_ttl_ms / 1000, 2 * heart.lease) - (monotonic() - heart.last_beat)
        else:
            left = (max(message.due_ms or 0, message.enqueued_at) + message.lock_ttl_ms - holding.now_ms()) / 1000
        return HeldLock(message.lock_key.partition(b":")[2].decode(), max(0.0, left))

    @property
    def fence(self) -> int:
        """Greater than that of every earlier delivery of the queue."""
        return self._run.fence

    @property
    def cancelled(self) -> bool:
        """Whether the job was told to stop: cancelled, out of time, or its worker is ending.

        A thread has to look. A sync job that has seen it and then returns counts as stopped: a cancelled one is cancelled,
        one whose worker is ending is handed back. One that ends without having looked has succeeded.
        """
        told = self._run.reason is not None or not self._run.alive
        if told:
            self._run.heeded = True
        return told

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
