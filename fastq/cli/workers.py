"""`fastq workers`: who runs the jobs."""
from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fastq.cli import show
from fastq.cli.target import for_machines, on_app
from fastq.cli.text import seconds

if TYPE_CHECKING:
    from fastq.app import FastQ
    from fastq.inspect import WorkerOverview


@click.command()
@on_app("[QUEUE]...", most=None)
@for_machines
def workers(app: FastQ, names: tuple[str, ...], as_json: bool) -> None:
    """Show the workers: which queues they serve, what they have in hand, when they last gave a sign of life.

    IN HAND counts stream entries, each of which holds 1 to 64 jobs.
    """
    from fastq import inspect

    found = app.broker.run(inspect.workers(app.config.namespace, names))
    if as_json:
        show.document(workers=found)
        return
    if not found:
        show.note("no worker is there")
        return
    columns = ("WORKER", "QUEUES", ">IN HAND", ">LAST SIGN", "STATE")
    show.table(columns, [[w.name, ", ".join(w.queues), f"{w.entries:,}", seconds(w.silent_for), _state(w)] for w in found])


def _state(worker: WorkerOverview) -> str:
    if worker.fenced:
        return "taken for dead"
    return "unknown to its queue" if worker.silent_for is None else ""
