"""Plays the demo from its first line to its last, and says by an exit code whether all was as it should be."""
from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from fastq.broker import inspection
from fastq.demo.plan import Plan
from fastq.demo.stage import set_stage

if TYPE_CHECKING:
    from fastq.demo.proof import Check
    from fastq.demo.run import Run
    from fastq.demo.view import View

DONE, FAILED = 0, 1
INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def play(jobs: int, processes: int, url: str | None) -> int:
    """Play the demo on the server of `url`, None: a private one. Returns the exit code. Raises BrokerError."""
    console = Console(highlight=False)
    try:
        with set_stage(Plan(jobs), url) as stage:
            # The stage has told the environment where the tasks are to run: they are imported only now.
            from fastq.demo import proof
            from fastq.demo.run import Run
            from fastq.demo.view import view_for

            server = stage.broker.call(inspection.server_name())
            title = f"fastq demo: {'a private ' if stage.server else ''}{server}, {processes} workers"
            run = Run(stage, processes)
            asyncio.run(_play(run, view_for(console, title)))
            checks = [*proof.check_jobs(run), *proof.check_queues(run), proof.check_processes(run)]
            log = run.last_words()
        checks.append(proof.check_stage(stage))
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("interrupted: the workers have ended, and what they worked on is removed")
        return INTERRUPTED
    if _print_proof(console, checks, time.monotonic() - run.begun):
        return DONE
    console.print("\n  the end of the workers' log:", *(log or ["(nothing)"]), sep="\n  ", markup=False)
    return FAILED


async def _play(run: Run, view: View) -> None:
    """Play it and show it. Ctrl-C and SIGTERM cancel it."""
    playing = asyncio.current_task()
    assert playing is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, playing.cancel)
    with view:
        showing = asyncio.create_task(_keep_showing(run, view))
        try:
            await run.play()
        finally:
            showing.cancel()
        view.update(run)


async def _keep_showing(run: Run, view: View) -> None:
    while True:
        await asyncio.sleep(view.period)
        view.update(run)


def _print_proof(console: Console, checks: Sequence[Check], seconds: float) -> bool:
    """Print what was found; whether all of it is as it should be."""
    ascii_only = console.options.ascii_only
    console.print("  proof, by a count of every run that is kept outside Redis", style="bold", end="\n\n")
    for check in checks:
        mark = ("ok" if ascii_only else "✓") if check.holds else "NOT SO"
        style = "green" if check.holds else "bold red"
        console.print(f"  [{style}]{mark}[/] {check.about:9} {check.finding}")
    wrong = sum(not check.holds for check in checks)
    end = f"[bold red]{wrong} of these are not as they should be" if wrong else "[bold green]all as it should be"
    console.print(f"\n  {end}[/], {seconds:.1f} s")
    return not wrong
