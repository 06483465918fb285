"""`fastq doctor`: what is wrong with a server and its queues, and what to do."""
from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fastq.cli import show
from fastq.cli.target import for_machines, on_app
from fastq.cli.text import many

if TYPE_CHECKING:
    from fastq.app import FastQ


@click.command()
@on_app("[QUEUE]...", most=None)
@click.option("--fix", is_flag=True, help="Put right what can be without a risk.")
@for_machines
def doctor(app: FastQ, names: tuple[str, ...], fix: bool, as_json: bool) -> None:
    """Look for what is wrong: the server, its settings, what crashes or hands have left in the queues.

    Exit code 1 if anything is wrong (and was not put right by --fix). --fix deletes locks without a job and notes of
    progress in entries that are gone, corrects the counter of waiting jobs, and has the workers look after forgotten
    parked jobs.
    """
    import time

    from fastq import inspect
    from fastq.cli import diagnosis
    from fastq.keys import queue_keys

    namespace = app.config.namespace
    found = app.broker.run(diagnosis.look_at_server())
    queues = list(names) or app.broker.run(inspect.queue_names(namespace))
    for name in queues:
        found += app.broker.run(diagnosis.look_at_queue(queue_keys(namespace, name), app.config.lease, fix, time.sleep))
    found += app.broker.run(diagnosis.look_at_locks(namespace, queues, fix))
    wrong = [one for one in found if one.level == "wrong" and not one.fixed]
    if as_json:
        show.document(ok=not wrong, findings=found)
    else:
        rows = [["fixed" if one.fixed else one.level, one.where, one.what, "" if one.fixed else one.advice] for one in found]
        show.table(("", "WHERE", "WHAT", "WHAT TO DO"), rows)
        show.note(f"{many(len(wrong), 'thing')} to put right" if wrong else "all is well")
    if wrong:
        raise click.exceptions.Exit(1)
