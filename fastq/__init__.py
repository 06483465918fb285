"""fastq: a task queue on Redis whose jobs are never enqueued twice.

    from fastq import FastQ, Unique

    app = FastQ("redis://localhost:6379/0")

    @app.task(unique=Unique(ttl=60))
    async def send_email(order_id: str) -> None: ...

    send_email.enqueue("o-1")

Names are loaded when they are first asked for, so that what needs only a part of fastq starts fast.
"""
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastq.app import FastQ
    from fastq.config import DeadBounds
    from fastq.current import CurrentJob, current_job
    from fastq.dead import DeadJob, ReplayRefusal, ReplayResult
    from fastq.errors import (
        AlreadyEnqueued,
        BrokerError,
        BulkError,
        ConfigError,
        DuplicateJobError,
        FastQError,
        JobFailed,
        JobIDConflictError,
        PayloadError,
        QueueFull,
        ResultTimeout,
        ResultUnavailable,
        UniqueConfigError,
        UnknownTaskError,
    )
    from fastq.job import BulkResult, Conflict, Duplicate, Job
    from fastq.locks import LockInfo
    from fastq.middleware import Middleware, OutgoingCall
    from fastq.queues import Queue, QueueCounts, WorkerInfo
    from fastq.retry import Backoff, Drop, Retry
    from fastq.task import BoundTask, PreparedCall, Task
    from fastq.unique import Unique

__version__ = "0.1.0"

_HOME = {
    "app": ("FastQ",),
    "config": ("DeadBounds",),
    "current": ("CurrentJob", "current_job"),
    "dead": ("DeadJob", "ReplayRefusal", "ReplayResult"),
    "errors": (
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
    ),
    "job": ("BulkResult", "Conflict", "Duplicate", "Job"),
    "locks": ("LockInfo",),
    "middleware": ("Middleware", "OutgoingCall"),
    "queues": ("Queue", "QueueCounts", "WorkerInfo"),
    "retry": ("Backoff", "Drop", "Retry"),
    "task": ("BoundTask", "PreparedCall", "Task"),
    "unique": ("Unique",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "AlreadyEnqueued",
    "Backoff",
    "BoundTask",
    "BrokerError",
    "BulkError",
    "BulkResult",
    "ConfigError",
    "Conflict",
    "CurrentJob",
    "DeadBounds",
    "DeadJob",
    "Drop",
    "Duplicate",
    "DuplicateJobError",
    "FastQ",
    "FastQError",
    "Job",
    "JobFailed",
    "JobIDConflictError",
    "LockInfo",
    "Middleware",
    "OutgoingCall",
    "PayloadError",
    "PreparedCall",
    "Queue",
    "QueueCounts",
    "QueueFull",
    "ReplayRefusal",
    "ReplayResult",
    "ResultTimeout",
    "ResultUnavailable",
    "Retry",
    "Task",
    "Unique",
    "UniqueConfigError",
    "UnknownTaskError",
    "WorkerInfo",
    "current_job",
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
