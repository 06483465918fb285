"""`fastq queues`, `pause`, `resume`, `purge`: whole queues."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fastq.cli import show
from fastq.cli.target import for_machines, on_app, sure
from fastq.cli.text import many, seconds

if TYPE_CHECKING:
    from fastq.app import FastQ
    from fastq.inspect import QueueOverview

COLUMNS = ("QUEUE", ">WAITING", ">OLDEST", ">RUNNING", ">SCHEDULED", ">RETRYING", ">DEAD", ">WORKERS", ">IN/s", ">DONE/s",
           ">FAILED/s", "STATE")  # fmt: skip


@click.command()
@on_app("[QUEUE]...", most=None)
@for_machines
def queues(app: FastQ, names: tuple[str, ...], as_json: bool) -> None:
    """Show what queues hold: how many jobs wait and for how long, what runs, who works, how fast.

    \b
    fastq queues shop.tasks
    fastq queues --url redis://localhost --namespace shop mail --json

    OLDEST: how long the oldest waiting job has waited. Rates are those of the last five minutes.
    """
    from fastq import inspect

    found = app.broker.run(inspect.overview(app.config.namespace, names))
    if as_json:
        show.document(queues=[_record(one) for one in found])
        return
    if not found:
        show.note(f"no queue has been used in namespace {app.config.namespace}")
        return
    show.table(COLUMNS, [_row(one) for one in found])


def _record(one: QueueOverview) -> dict[str, Any]:
    counts = one.counts
    return {
        "name": one.name,
        "paused": counts.paused,
        "waiting": counts.waiting,
        "oldest_wait": one.oldest_wait,
        "running": counts.running,
        "scheduled": counts.scheduled,
        "retrying": counts.retrying,
        "dead": counts.dead,
        "workers": counts.workers,
        "rates": one.rates,
        "totals": counts.totals,
    }


def _row(one: QueueOverview) -> list[str]:
    counts = one.counts
    numbers = (counts.running, counts.scheduled, counts.retrying, counts.dead, counts.workers)
    rates = [f"{one.rates[name]:,.1f}" if one.rates else "-" for name in ("enqueued", "succeeded", "failed")]
    stuck = counts.waiting and not counts.workers
    state = "paused" if counts.paused else "no worker" if stuck else ""
    return [one.name, f"{counts.waiting:,}", seconds(one.oldest_wait), *(f"{n:,}" for n in numbers), *rates, state]


@click.command()
@on_app("QUEUE...", least=1, most=None)
@for_machines
def pause(app: FastQ, names: tuple[str, ...], as_json: bool) -> None:
    """Start no more jobs of these queues; those that run go on."""
    _gate(app, names, "pause", as_json)


@click.command()
@on_app("QUEUE...", least=1, most=None)
@for_machines
def resume(app: FastQ, names: tuple[str, ...], as_json: bool) -> None:
    """Let the jobs of paused queues start again."""
    _gate(app, names, "resume", as_json)


def _gate(app: FastQ, names: tuple[str, ...], what: str, as_json: bool) -> None:
    from fastq import inspect

    chosen = [app.queue(name) for name in names]  # a bad name is refused before anything is done
    used = app.broker.run(inspect.queue_names(app.config.namespace))
    changed = {queue.name: queue.pause() if what == "pause" else queue.resume() for queue in chosen}
    if as_json:
        show.document(changed=changed)
        return
    for name, did in changed.items():
        state = f"{what}d" if did else "was paused already" if what == "pause" else "was not paused"
        click.echo(f"{name}: {state}{'' if name in used else ' (no job was ever enqueued there)'}")


@click.command()
@on_app("QUEUE...", least=1, most=None)
@sure
@for_machines
def purge(app: FastQ, names: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete the jobs of these queues that wait, are scheduled or retrying; their locks and ids are free again.

    What runs goes on, and dead jobs stay (fastq dead delete).
    """
    chosen = [app.queue(name) for name in names]
    for queue in chosen:
        counts = queue.counts()
        parts = f"{counts.waiting:,} waiting, {counts.scheduled:,} scheduled and {counts.retrying:,} retrying jobs"
        show.confirm(f"This deletes the jobs of queue {queue.name}: {parts}", yes)
    purged = {queue.name: queue.purge() for queue in chosen}
    if as_json:
        show.document(purged=purged)
        return
    for name, jobs in purged.items():
        click.echo(f"{name}: {many(jobs, 'job')} deleted")
