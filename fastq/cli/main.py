"""`fastq`: finds the command, and turns what goes wrong into one line and an exit code: 1 failed, 2 wrong use."""
from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

import fastq

# Before the current folder is searched for the user's modules: in a checkout it holds a fastq that is not compiled.
import fastq_ext  # noqa: F401
from fastq.cli.dead import dead
from fastq.cli.demo import demo
from fastq.cli.doctor import doctor
from fastq.cli.jobs import jobs
from fastq.cli.locks import locks
from fastq.cli.queues import pause, purge, queues, resume
from fastq.cli.scheduled import scheduled
from fastq.cli.text import escaped
from fastq.cli.worker import worker
from fastq.cli.workers import workers
from fastq.errors import ConfigError, FastQError

FAILED, WRONG_USE = 1, 2
INTERRUPTED = 130  # 128 + SIGINT, as shells have it


@click.group(
    invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(fastq.__version__, prog_name="fastq", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """A task queue on Redis whose jobs are never enqueued twice.

    \b
    fastq worker shop.tasks      run the jobs of the FastQ in shop/tasks.py
    fastq demo                   see it work: a private server, a producer, workers
    fastq queues shop.tasks      what waits, runs and has failed
    fastq doctor shop.tasks      what is wrong, and what to do

    Exit codes: 0 done, 1 failed, 2 wrong use. Logs go to stderr.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(WRONG_USE)


for command in (worker, demo, queues, workers, jobs, dead, scheduled, locks, pause, resume, purge, doctor):
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line (None: the program's own) and exit."""
    search_current_folder()
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; what went wrong is told on stderr in one line."""
    try:
        return cli.main(arguments, prog_name="fastq", standalone_mode=False) or 0
    except click.ClickException as error:
        _tell(error.format_message(), _command_of(error))
        return error.exit_code
    except ConfigError as error:
        _tell(str(error))
        return WRONG_USE
    except FastQError as error:
        _tell(str(error))
        return FAILED
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED


def search_current_folder() -> None:
    """Let modules be imported from the current folder, as `python -m` does."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)


def _command_of(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return context.command_path if context is not None else "fastq"


def _tell(problem: str, command: str = "fastq") -> None:
    line = escaped(" ".join(problem.split()))
    click.echo(f"{command}: {line}", err=True)
