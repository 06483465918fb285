"""`fastq dead`: jobs that will not run any more, unless they are replayed."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fastq.cli import show
from fastq.cli.find import find_job, known_queues, reference
from fastq.cli.target import for_machines, on_app, paged, queue_option, sure
from fastq.cli.text import call, many, moment

if TYPE_CHECKING:
    from fastq.app import FastQ
    from fastq.dead import DeadJob


@click.group()
def dead() -> None:
    """Jobs that have failed for good: to look at, to replay, to delete."""


@dead.command("list")
@on_app()
@queue_option("default", "Whose jobs.")
@paged
@for_machines
def list_dead(app: FastQ, queue: str, limit: int, offset: int, as_json: bool) -> None:
    """List them, those that died last first."""
    found = app.queue(queue).dead.list(limit, offset)
    total = app.queue(queue).dead.count()
    if as_json:
        show.document(dead=[_record(job) for job in found], total=total, offset=offset)
        return
    if found:
        columns = ("UID", "TASK", "ARGUMENTS", "DIED (UTC)", ">ATTEMPTS", "REASON", "ERROR")
        show.table(columns, [_row(job) for job in found])
    show.page_note(len(found), total, offset, f"dead jobs in queue {queue}")
    if not total:
        others = [f"{name} ({n:,})" for name in known_queues(app) if (n := app.queue(name).dead.count())]
        if others:
            show.note(f"there are some in other queues (--queue): {', '.join(others)}")


def _row(job: DeadJob) -> list[str]:
    arguments = call(job.args, job.kwargs, 60)
    return [job.uid, job.task, arguments, moment(job.died_at), str(job.attempts), job.reason[:100], job.error[:200]]


def _record(job: DeadJob) -> dict[str, Any]:
    names = ("uid", "queue", "task", "args", "kwargs", "job_id", "key", "reason", "error", "traceback", "attempts", "crashes",
             "enqueued_at", "died_at", "unreadable")  # fmt: skip
    return {name: getattr(job, name) for name in names}


@dead.command("show")
@on_app("UID", least=1, most=1)
@queue_option(None, "Its queue; left out: all are asked.")
@for_machines
def show_dead(app: FastQ, names: tuple[str], queue: str | None, as_json: bool) -> None:
    """Show one, with its arguments and its traceback."""
    job = None
    _check_uid(names[0])
    for name in [queue] if queue is not None else known_queues(app):
        job = job or app.queue(name).dead.get(names[0])
    if job is None:
        show.note(f"{names[0]} is not dead")
        raise click.exceptions.Exit(1)
    if as_json:
        show.document(job=_record(job))
        return
    show.details([
        ("uid", job.uid),
        ("job_id", job.job_id or ""),
        ("queue", job.queue),
        ("task", job.task),
        ("arguments", call(job.args, job.kwargs, 10_000)),
        ("payload", repr(job.payload[:1000]) if job.args is None else ""),
        ("lock", job.key or ""),
        ("attempts", str(job.attempts)),
        ("crashes", str(job.crashes)),
        ("enqueued", moment(job.enqueued_at)),
        ("died", moment(job.died_at)),
        ("reason", job.reason),
        ("error", job.error),
        ("traceback", f"\n{job.traceback}" if job.traceback else ""),
    ])  # fmt: skip


@dead.command()
@on_app("UID...", most=None)
@queue_option(None, "Their queue; left out: all are asked.")
@click.option("--all", "everything", is_flag=True, help="All that are dead in --queue.")
@for_machines
def replay(app: FastQ, names: tuple[str, ...], queue: str | None, everything: bool, as_json: bool) -> None:
    """Enqueue them again, from attempt 1, with their uid, arguments, lock and id.

    One whose lock or id another job has by now stays dead, and is told; the exit code is 1 then.
    """
    replayed, refused_count, refused = 0, 0, []
    for place, uids in _chosen(app, names, queue, everything).items():
        jobs = app.queue(place).dead
        result = jobs.replay_all() if everything else jobs.replay(*uids)
        replayed += result.replayed
        refused_count += result.refused_count
        refused += result.refused
    if as_json:
        show.document(replayed=replayed, refused_count=refused_count, refused=refused)
    else:
        for one in refused[:100]:
            show.note(f"{one.job_uid}: {one.reason}")
        click.echo(f"{replayed:,} replayed, {refused_count:,} refused")
    if refused_count:
        raise click.exceptions.Exit(1)


@dead.command()
@on_app("UID...", most=None)
@queue_option(None, "Their queue; left out: all are asked.")
@click.option("--all", "everything", is_flag=True, help="All that are dead in --queue.")
@sure
@for_machines
def delete(app: FastQ, names: tuple[str, ...], queue: str | None, everything: bool, yes: bool, as_json: bool) -> None:
    """Delete them for good; their locks and ids are free again."""
    chosen = _chosen(app, names, queue, everything)
    if everything:
        show.confirm(f"This deletes all {app.queue(queue or '').dead.count():,} dead jobs of queue {queue}", yes)
    else:
        show.confirm(f"This deletes {many(len(names), 'dead job')}", yes)
    deleted = 0
    for place, uids in chosen.items():
        jobs = app.queue(place).dead
        deleted += jobs.delete_all() if everything else jobs.delete(*uids)
    if as_json:
        show.document(deleted=deleted)
    else:
        click.echo(f"{deleted:,} deleted")
    if deleted < len(names):
        show.note(f"{len(names) - deleted:,} were not dead")
        raise click.exceptions.Exit(1)


def _chosen(app: FastQ, names: tuple[str, ...], queue: str | None, everything: bool) -> dict[str, list[str]]:
    """The uids that are meant, by their queue; one that no queue knows is left to the first to refuse."""
    context = click.get_current_context()
    if everything == bool(names):
        raise click.UsageError("give the UIDs, or --all with --queue", context)
    if everything and queue is None:
        raise click.UsageError("--all needs --queue: it means all of one queue", context)
    for name in names:
        _check_uid(name)
    if queue is not None:
        return {queue: [*names]}
    chosen: dict[str, list[str]] = {}
    for name in names:
        found = find_job(app, reference(name, False), None)
        chosen.setdefault(found.queue if found is not None else "default", []).append(name)
    return chosen


def _check_uid(name: str) -> None:
    if not reference(name, False).uid:
        raise click.UsageError(f"{name!r} is not the uid of a job", click.get_current_context())
