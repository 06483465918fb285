"""`fastq locks`: the locks of unique jobs."""
from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fastq.cli import show
from fastq.cli.target import for_machines, limited, on_app, queue_option, sure
from fastq.cli.text import seconds

if TYPE_CHECKING:
    from fastq.app import FastQ


@click.group()
def locks() -> None:
    """The locks of unique jobs."""


@locks.command("list")
@on_app()
@queue_option(None, "Only this queue's.")
@click.option("-t", "--task", metavar="NAME", default="", help="Only this task's.")
@click.option("--cursor", type=click.IntRange(0), default=0, metavar="N", help="Go on from where a page ended.")
@limited
@for_machines
def list_locks(app: FastQ, queue: str | None, task: str, cursor: int, limit: int, as_json: bool) -> None:
    """List the locks that are held, in no order.

    They are looked for among all keys of the database. A page may have more locks than --limit, or fewer when there are
    many other keys; while there is a next one, its cursor is told.
    """
    from fastq import inspect
    from fastq.config import check_name, check_task_name

    if queue is not None:
        check_name("queue", queue)
    if task:
        check_task_name(task)
    page = app.broker.run(inspect.locks(app.config.namespace, queue=queue or "", task=task, limit=limit, cursor=cursor))
    if as_json:
        show.document(locks=page.locks, cursor=page.cursor)
        return
    columns = ("QUEUE", "TASK", "KEY", "JOB", "STATE", ">EXPIRES IN")
    if page.locks:
        show.table(columns, [[k.queue, k.task, k.key, k.job_uid, k.state, seconds(k.expires_in)] for k in page.locks])
    if page.cursor is not None:
        show.note(f"{len(page.locks):,} locks; there may be more: --cursor {page.cursor}")
    elif not page.locks:
        show.note("no locks are held" if not cursor else "no more locks")


@locks.command()
@on_app("TASK KEY", least=2, most=2)
@queue_option("default", "The queue of the lock.")
@sure
@for_machines
def release(app: FastQ, task_and_key: tuple[str, str], queue: str, yes: bool, as_json: bool) -> None:
    """Free a lock, named as `locks list` shows it, whoever holds it. The job goes on, and its like can be enqueued again."""
    from fastq.broker import requests
    from fastq.config import check_task_name
    from fastq.keys import queue_keys
    from fastq.unique import lock_prefix

    task, key = task_and_key
    keys, lock_key = queue_keys(app.config.namespace, queue), lock_prefix(check_task_name(task)) + key.encode()
    [lock] = app.broker.call(requests.locks_look(keys, [lock_key]))
    if lock is not None:
        show.confirm(f"This frees the lock {key} of {task}, held by a job that is {lock.state}", yes)
    released = lock is not None and app.broker.call(requests.locks_release(keys, lock_key))
    if as_json:
        show.document(released=released)
    elif released:
        click.echo("released")
    else:
        show.note(f"there is no lock {key} of {task} in queue {queue}")
    if not released:
        raise click.exceptions.Exit(1)
