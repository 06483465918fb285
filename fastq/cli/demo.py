"""`fastq demo`: see it work, and have it prove that it does."""
from __future__ import annotations

import click


@click.command()
@click.option("-j", "--jobs", type=click.IntRange(100, 5_000_000), metavar="N", default=100_000, show_default=True,
              help="Plain jobs; the others are in proportion.")  # fmt: skip
@click.option("-p", "--processes", type=click.IntRange(1, 64), metavar="N", default=2, show_default=True,
              help="Worker processes.")  # fmt: skip
@click.option("--url", metavar="URL",
              help="Use this server instead of a private one; in a namespace that is removed again.")  # fmt: skip
def demo(jobs: int, processes: int, url: str | None) -> None:
    """See it work: a private server, a producer, workers and unique jobs.

    Jobs are enqueued in bulk and one by one; twice, the second to be refused; for later; and such that fail and are
    retried. Each run is counted outside Redis. In the end the counts have to show that every job ran and no duplicate
    did, and that nothing is left in Redis or running: exit code 1 if anything is not so.
    """
    from fastq.demo.play import play

    raise click.exceptions.Exit(play(jobs, processes, url))
