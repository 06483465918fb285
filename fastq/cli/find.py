"""Finds the queue in which a job is."""
from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fastq.app import FastQ
    from fastq.codec import PayloadDecoder
    from fastq.inspect import JobReport


class Reference(NamedTuple):
    """How a job is named: by its uid, or by its job_id."""

    uid: str
    job_id: str


def reference(name: str, by_id: bool) -> Reference:
    """What a word on the command line means."""
    from fastq.job import uid_bytes, uid_string

    if not by_id:
        try:
            return Reference(uid_string(uid_bytes(name)), "")
        except ValueError:
            pass
    return Reference("", name)


def known_queues(app: FastQ) -> list[str]:
    """The queues that were ever used."""
    from fastq import inspect

    return app.broker.run(inspect.queue_names(app.config.namespace))


def find_job(app: FastQ, wanted: Reference, queue: str | None) -> JobReport | None:
    """What is known of a job, in this queue or in whichever has it; None: nothing."""
    from fastq import inspect
    from fastq.job import uid_bytes
    from fastq.keys import queue_keys

    def decoder_of(task: str) -> PayloadDecoder | None:
        return app.tasks[task].decoder if task in app.tasks else None

    uid = uid_bytes(wanted.uid) if wanted.uid else b""
    for name in [queue] if queue is not None else known_queues(app):
        report = app.broker.run(inspect.job(queue_keys(app.config.namespace, name), uid, wanted.job_id, decoder_of))
        if report is not None:
            return report
    return None
