"""OpenTelemetry: a span where a job is enqueued, one for its wait and one around each attempt, all in one trace.

Needs the API of OpenTelemetry, `fastq-queue[otel]`; what becomes of spans its SDK decides, which the program sets up.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind, StatusCode, TracerProvider

from fastq.current import CurrentJob
from fastq.middleware import Middleware, Next, OutgoingCall
from fastq.retry import Drop, Retry


class OpenTelemetry(Middleware):
    """Traces every enqueue and every run of an app. `tracer_provider` None: the program's own.

    The trace travels in the job's headers, in the form that the program has set for all of its propagation. Arguments and results
    are not recorded.

    >>> app.middleware(OpenTelemetry())  # doctest: +SKIP
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("fastq", tracer_provider=tracer_provider)

    def enqueue(self, call: OutgoingCall) -> None:
        """A span where the job begins; all that it does is under it."""
        attributes = _attributes("send", call.task, call.queue)
        with self._tracer.start_as_current_span(f"enqueue {call.task}", kind=SpanKind.PRODUCER, attributes=attributes):
            propagate.inject(call.headers)

    async def run(self, job: CurrentJob, call_next: Next) -> Any:
        """A span for the wait, before the first attempt, and one around each attempt."""
        sender = propagate.extract(job.headers)
        if job.attempt == 1:
            begun = min(_nanoseconds(job.due_at), time.time_ns())  # the server's clock may be ahead
            wait = self._tracer.start_span(f"wait {job.task}", sender, start_time=begun, attributes=_of(job, "wait"))
            wait.end()
        name, attributes = f"run {job.task}", _of(job, "process")
        with self._tracer.start_as_current_span(
            name, sender, SpanKind.CONSUMER, attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                return await call_next()
            except Drop:  # the job's own way to end
                span.set_attribute("fastq.outcome", "dropped")
                raise
            except Retry:
                span.set_attribute("fastq.outcome", "retry")
                raise
            except BaseException as error:
                span.record_exception(error)
                span.set_status(StatusCode.ERROR, type(error).__qualname__)
                raise


def _of(job: CurrentJob, operation: str) -> dict[str, str | int]:
    return {**_attributes(operation, job.task, job.queue), "messaging.message.id": job.uid, "fastq.attempt": job.attempt}


def _attributes(operation: str, task: str, queue: str) -> dict[str, str | int]:
    return {
        "messaging.system": "fastq",
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
        "fastq.task": task,
    }


def _nanoseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000) * 1_000_000
