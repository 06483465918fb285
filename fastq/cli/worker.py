"""`fastq worker`: runs the jobs of a program in a fleet of processes, and is each of these processes too."""
from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
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


def _queues(context: click.Context, option: click.Parameter, value: str | None) -> list[str] | dict[str, float] | None:
    if value is None:
        return None
    parts = [part.strip() for part in value.split(",")]
    if not all(parts):
        raise click.BadParameter(f"{value!r} has an empty name: list the queues as in mail,default")
    weighted = ["=" in part for part in parts]
    if not any(weighted):
        return parts
    if not all(weighted):
        raise click.BadParameter(f"{value!r} is neither: give all queues a weight, as in high=5,default=1, or none")
    try:
        return {name.strip(): float(weight) for name, _, weight in (part.partition("=") for part in parts)}
    except ValueError:
        raise click.BadParameter(f"{value!r}: a weight is a number, as in high=5,default=1") from None


@click.command()
@click.argument("target", metavar="MODULE[:APP]")
@click.option("-p", "--processes", type=click.IntRange(1, 1024), metavar="N", default=None,
              show_default="one per core", help="Worker processes.")  # fmt: skip
@click.option("-c", "--concurrency", type=click.IntRange(1, 10_000), metavar="N", default=100, show_default=True,
              help="Jobs that run at once in each process.")  # fmt: skip
@click.option("-q", "--queues", callback=_queues, metavar="A,B", show_default="all of the app's, in turn",
              help="Queues to serve: in strict order, left first, or by weight: high=5,default=1.")  # fmt: skip
@click.option("-i", "--import", "imports", multiple=True, metavar="MODULE",
              help="A module with more tasks; may be given several times.")  # fmt: skip
@click.option("--grace", type=click.FloatRange(0, 86_400), default=25.0, show_default=True, metavar="SECONDS",
              help="Time that running jobs get to end after a signal.")  # fmt: skip
@click.option("--burst", is_flag=True, help="End when nothing is left to do.")
@click.option("--preload", is_flag=True, help="Import the program once, before forking; saves memory.")
@click.option("--max-jobs", type=click.IntRange(1), metavar="N", help="Replace a process after about N jobs.")
@click.option("--max-age", type=click.FloatRange(1), metavar="SECONDS", help="Replace a process of that age.")
@click.option("--max-rss", type=click.IntRange(1), metavar="MIB", help="Replace a process that uses so much memory.")
@click.option("--watchdog", type=click.FloatRange(1), default=300.0, show_default=True, metavar="SECONDS",
              help="Kill a process whose event loop is held for so long.")  # fmt: skip
@click.option("--reload", is_flag=True, help="For development: one process, new code whenever a file here changes.")
@click.option("--metrics-port", type=click.IntRange(0, 65_535), metavar="PORT",
              help="Serve /metrics, /healthz and /readyz there.")  # fmt: skip
@click.option("--metrics-host", default="127.0.0.1", show_default=True, metavar="HOST",
              help="The address to serve them at; 0.0.0.0 for probes from outside.")  # fmt: skip
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
@click.option("--child", hidden=True, metavar="FD:TOKEN", help="For the processes of a fleet.")
@click.option("--boards", type=click.Path(path_type=Path), hidden=True, metavar="DIR", help="For the processes of a fleet.")
@click.option("--template", type=int, hidden=True, metavar="FD", help="For the process that a fleet is forked from.")
def worker(
    target: str,
    processes: int | None,
    concurrency: int,
    queues: list[str] | dict[str, float] | None,
    imports: tuple[str, ...],
    grace: float,
    burst: bool,
    preload: bool,
    max_jobs: int | None,
    max_age: float | None,
    max_rss: int | None,
    watchdog: float,
    reload: bool,
    metrics_port: int | None,
    metrics_host: str,
    log_format: Format,
    log_level: str,
    child: str | None,
    boards: Path | None,
    template: int | None,
) -> None:
    """Run the jobs of the FastQ in MODULE; APP names it if there are several.

    \b
    fastq worker shop.tasks
    fastq worker shop.tasks:app --processes 4 --queues mail,default

    The current folder is searched for modules. SIGTERM and SIGINT end it in good order: nothing more is fetched, what
    has not started goes back at once, what runs gets the grace time. A second signal ends it at once; in neither case
    is a job lost. SIGHUP replaces the processes one after the other, by such that run new code.
    """
    set_up(log_format, log_level)
    app = find_app(target)
    for module in imports:
        import_module(module)
    app.import_tasks()
    options: dict[str, Any] = {"queues": queues, "concurrency": concurrency, "burst": burst, "grace": grace}
    if template is not None:
        child = _fork(template)
        if child is None:
            return
    if child is not None:
        _run_here(app, child, options, boards)
        return
    served = app.worker(**options)
    _reach(app, served.queues[0])
    # What a process of its own needs to know; the fleet adds --child or --template.
    command = [
        *(sys.executable, "-P", "-m", "fastq.cli", "worker", target),
        *("--concurrency", str(concurrency), "--grace", str(grace)),
        *("--log-format", log_format, "--log-level", log_level),
        *(("--queues", _as_told(queues)) if queues is not None else ()),
        *(part for module in imports for part in ("--import", module)),
        *(("--burst",) if burst else ()),
    ]
    from fastq.fleet.fleet import Fleet
    from fastq.fleet.limits import Limits
    from fastq.fleet.reload import check_reload

    if reload:
        check_reload()
    with _metrics(app, lambda: served.queues, metrics_host, metrics_port) as measured:
        Fleet(
            [*command, *measured],
            processes=processes or (1 if reload else _cores()),
            grace=grace,
            burst=burst,
            limits=Limits(max_jobs=max_jobs, max_age=max_age, max_rss=max_rss),
            watchdog=watchdog,
            preload=preload,
            reload=Path.cwd() if reload else None,
        ).run()


@contextlib.contextmanager
def _metrics(app: FastQ, queues: Callable[[], Sequence[str]], host: str, port: int | None) -> Iterator[list[str]]:
    """Serve metrics, if they are wanted. Yields what the worker processes have to be told."""
    if port is None:
        yield []
        return
    try:
        from fastq.probes import board_folder, served
    except ImportError as error:
        raise click.UsageError(f"--metrics-port: {error}; pip install 'fastq-queue[metrics]'") from None
    with board_folder() as folder, contextlib.ExitStack() as serving:
        try:
            serving.enter_context(served(app.config, folder, queues, host=host, port=port))
        except OSError as error:
            raise click.UsageError(f"--metrics-port {port}: {error}") from None
        yield ["--boards", str(folder)]


def _as_told(queues: list[str] | dict[str, float]) -> str:
    if isinstance(queues, dict):
        return ",".join(f"{name}={weight:g}" for name, weight in queues.items())
    return ",".join(queues)


def _fork(fd: int) -> str | None:
    """Be the template of a fleet. Returns in each child what it was told, and None at the end."""
    import gc

    import fastq.fleet.lifeline
    import fastq.worker.worker  # noqa: F401  # all that a child needs is there before the first fork
    from fastq.fleet.template import serve

    # What is there now is never collected: a collector that looked at it would write to it, and it would be shared no more.
    gc.collect()
    gc.freeze()
    return serve(fd)


def _run_here(app: FastQ, child: str, options: dict[str, Any], boards: Path | None) -> None:
    """Run a worker in this process, a child of a fleet."""
    from fastq.fleet.lifeline import FleetHeart, Lifeline
    from fastq.worker.meter import Meter
    from fastq.worker.worker import host_and_process

    lifeline = Lifeline(child)
    lifeline.watch(options["grace"])
    _refuse_stray_embedded(app)
    name = f"{host_and_process()}-{lifeline.token}"
    meter = Meter(boards) if boards is not None else None
    app.worker(name=name, heart=FleetHeart(app.config, lifeline), meter=meter, **options).run()
    _leave_busy_threads()


def _reach(app: FastQ, queue: str) -> None:
    """See that the server can be used, once instead of in each child. Raises BrokerError."""
    from fastq.broker import requests
    from fastq.keys import queue_keys

    _refuse_stray_embedded(app)
    app.broker.call(requests.gate(queue_keys(app.config.namespace, queue)))
    app.close()


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
