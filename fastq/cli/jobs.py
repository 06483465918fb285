"""`fastq jobs`: single jobs."""
from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fastq.cli import show
from fastq.cli.find import find_job, known_queues, reference
from fastq.cli.target import for_machines, on_app, queue_option
from fastq.cli.text import call, moment

if TYPE_CHECKING:
    from fastq.app import FastQ
    from fastq.inspect import JobReport

NO_RECORD = "no queue knows it; a plain job leaves no record of its own while it waits and runs, nor when it has succeeded"


@click.group()
def jobs() -> None:
    """Single jobs, by their uid or their job_id."""


@jobs.command("show")
@on_app("JOB", least=1, most=1)
@queue_option(None, "Its queue; left out: all are asked.")
@click.option("--by-id", is_flag=True, help="JOB is a job_id, though it looks like a uid.")
@for_machines
def show_job(app: FastQ, names: tuple[str], queue: str | None, by_id: bool, as_json: bool) -> None:
    """Show what is known of a job."""
    report = find_job(app, reference(names[0], by_id), queue)
    if report is None:
        show.note(f"{names[0]}: {NO_RECORD}")
        raise click.exceptions.Exit(1)
    if as_json:
        show.document(job=report)
        return
    show.details(_facts(report))


def _facts(job: JobReport) -> list[tuple[str, str]]:
    return [
        ("uid", job.uid),
        ("job_id", job.job_id or ""),
        ("queue", job.queue),
        ("state", job.state),
        ("task", job.task or ""),
        ("arguments", call(job.args, job.kwargs, 10_000) if job.task else ""),
        ("lock", job.key or ""),
        ("attempt", str(job.attempt or "")),
        ("crashes", str(job.crashes or "")),
        ("enqueued", moment(job.enqueued_at)),
        ("due", moment(job.due)),
        ("expires", moment(job.expires)),
        ("error", job.error),
        ("traceback", f"\n{job.traceback}" if job.traceback else ""),
    ]


@jobs.command()
@on_app("JOB...", least=1, most=None)
@queue_option(None, "Their queue; left out: all are asked.")
@click.option("--by-id", is_flag=True, help="JOB is a job_id, though it looks like a uid.")
@for_machines
def cancel(app: FastQ, names: tuple[str, ...], queue: str | None, by_id: bool, as_json: bool) -> None:
    """Ask that jobs do not run.

    "will not start": it was scheduled, and is gone. "asked to stop": it runs or waits, and is stopped at the next
    chance; one that has ended is not affected.
    """
    outcomes: dict[str, str] = {}
    everywhere = [queue] if queue is not None else known_queues(app)
    for name in names:
        wanted = reference(name, by_id)
        found = find_job(app, wanted, queue)
        place = found.queue if found is not None else everywhere[0] if len(everywhere) == 1 else None
        if place is None or (found is None and not wanted.uid):
            outcomes[name] = "not found"
            continue
        done = app.job(wanted.uid or None, job_id=wanted.job_id or None, queue=place).cancel()
        outcomes[name] = "will not start" if done else "asked to stop"
    if as_json:
        show.document(jobs=outcomes)
    else:
        for name, outcome in outcomes.items():
            show.details([(name, outcome if outcome != "not found" else f"not found: {NO_RECORD}; give its --queue")])
    if "not found" in outcomes.values():
        raise click.exceptions.Exit(1)
