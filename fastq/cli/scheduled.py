"""`fastq scheduled`: jobs that wait for their time."""
from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fastq.cli import show
from fastq.cli.target import for_machines, on_app, paged, queue_option
from fastq.cli.text import moment, seconds

if TYPE_CHECKING:
    from fastq.app import FastQ


@click.group()
def scheduled() -> None:
    """Jobs that wait for their time, or for their next attempt."""


@scheduled.command("list")
@on_app()
@queue_option("default", "Whose jobs.")
@paged
@for_machines
def list_scheduled(app: FastQ, queue: str, limit: int, offset: int, as_json: bool) -> None:
    """List them, the next one first."""
    from fastq import inspect
    from fastq.keys import queue_keys

    found = app.broker.run(inspect.scheduled(queue_keys(app.config.namespace, queue), limit=limit, offset=offset))
    counts = app.queue(queue).counts()
    total = counts.scheduled + counts.retrying
    if as_json:
        show.document(scheduled=found, total=total, offset=offset)
        return
    now = app.broker.now_ms() / 1000
    columns = ("UID", "TASK", "STATE", "DUE (UTC)", ">IN", ">ATTEMPT", "JOB ID", "LOCK", "LAST ERROR")
    rows = [
        [job.uid, job.task, job.state, moment(job.due), seconds(max(0.0, job.due.timestamp() - now)), str(job.attempt),
         job.job_id or "", job.key or "", job.error[:200]]
        for job in found
    ]  # fmt: skip
    if rows:
        show.table(columns, rows)
    show.page_note(len(found), total, offset, f"scheduled jobs of queue {queue}")
