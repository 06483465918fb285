"""`fastq worker`: runs the jobs of a program, in one process or in several."""
from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import click

from fastq.cli.apps import find_app, import_module
from fastq.logs import LEVELS, Format, set_up

if TYPE_CHECKING:
    from fastq.app import FastQ

PATIENCE = 0.5  # seconds that threads which run nothing get to end


def _cores() -> int:
    """The cores that this process may use."""
    with contextlib.suppress(AttributeError):  # not everywhere
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _queue_names(context: click.Context, option: click.Parameter, value: str | None) -> list[str] | None:
    if value is None:
        return None
    if "=" in value:
        raise click.BadParameter("weights are not there yet: list the queues in strict order, such as mail,default")
    names = [name.strip() for name in value.split(",")]
    if not all(names):
        raise click.BadParameter(f"{value!r} has an empty name: list the queues as in mail,default")
    return names


@click.command()
@click.argument("target", metavar="MODULE[:APP]")
@click.option("-p", "--processes", type=click.IntRange(1, 1024), metavar="N", default=_cores,
              show_default="one per core", help="Worker processes.")  # fmt: skip
@click.option("-c", "--concurrency", type=click.IntRange(1, 10_000), metavar="N", default=100, show_default=True,
              help="Jobs that run at once in each process.")  # fmt: skip
@click.option("-q", "--queues", callback=_queue_names, metavar="A,B", show_default="all of the app's, in turn",
              help="Queues to serve, in strict order, left first.")  # fmt: skip
@click.option("-i", "--import", "imports", multiple=True, metavar="MODULE",
              help="A module with more tasks; may be given several times.")  # fmt: skip
@click.option("--grace", type=click.FloatRange(0, 86_400), default=25.0, show_default=True, metavar="SECONDS",
              help="Time that running jobs get to end after a signal.")  # fmt: skip
@click.option("--burst", is_flag=True, help="End when nothing is left to do.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
@click.option("--child", hidden=True, metavar="FD:TOKEN", help="For the processes of a fleet.")
def worker(
    target: str,
    processes: int,
    concurrency: int,
    queues: list[str] | None,
    imports: tuple[str, ...],
    grace: float,
    burst: bool,
    log_format: Format,
    log_level: str,
    child: str | None,
) -> None:
    """Run the jobs of the FastQ in MODULE; APP names it if there are several.

    \b
    fastq worker shop.tasks
    fastq worker shop.tasks:app --processes 4 --queues mail,default

    The current folder is searched for modules. SIGTERM and SIGINT end it in good order: nothing more is fetched, what
    has not started goes back at once, what runs gets the grace time. A second signal ends it at once; in neither case
    is a job lost.
    """
    set_up(log_format, log_level)
    app = find_app(target)
    for module in imports:
        import_module(module)
    app.import_tasks()
    options: dict[str, Any] = {"queues": queues, "concurrency": concurrency, "burst": burst, "grace": grace}
    if child is not None or processes == 1:
        _run_here(app, child, options)
        return
    served = app.worker(**options).queues
    _reach(app, served[0])
    command = [
        *(sys.executable, "-P", "-m", "fastq.cli", "worker", target, "--processes", "1"),
        *("--concurrency", str(concurrency), "--grace", str(grace)),
        *("--log-format", log_format, "--log-level", log_level),
        *(("--queues", ",".join(queues)) if queues is not None else ()),
        *(part for module in imports for part in ("--import", module)),
        *(("--burst",) if burst else ()),
    ]
    from fastq.fleet import Fleet

    Fleet(app, command, processes=processes, queues=served, grace=grace).run()


def _run_here(app: FastQ, child: str | None, options: dict[str, Any]) -> None:
    """Run a worker in this process."""
    from fastq.fleet import Lifeline
    from fastq.worker.worker import host_and_process

    name = None
    if child is not None:
        lifeline = Lifeline(child)
        lifeline.watch(options["grace"])
        name = f"{host_and_process()}-{lifeline.token}"
    _refuse_stray_embedded(app)
    app.worker(name=name, **options).run()
    _leave_busy_threads()


def _reach(app: FastQ, queue: str) -> None:
    """See that the server can be used, once instead of in each child. Raises BrokerError."""
    from fastq.broker import requests
    from fastq.keys import queue_keys

    _refuse_stray_embedded(app)
    app.broker.call(requests.gate(queue_keys(app.config.namespace, queue)))


def _refuse_stray_embedded(app: FastQ) -> None:
    """Raise BrokerError for an `embedded://` of this process's own: nobody could send it jobs."""
    where = app.config.endpoint()
    if where.kind == "embedded":
        from fastq.embedded import open_embedded

        open_embedded(where.url, may_create=bool(where.folder))


def _leave_busy_threads() -> None:
    """End this process now if a thread still runs a job that was given up: Python would wait for it."""
    until = time.monotonic() + PATIENCE
    for thread in threading.enumerate():
        if thread is threading.main_thread() or thread.daemon:
            continue
        thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive():
            logging.shutdown()
            sys.stdout.flush()
            os._exit(0)
