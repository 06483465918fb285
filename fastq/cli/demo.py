"""`fastq demo`: see it work."""
from __future__ import annotations

import click


@click.command()
def demo() -> None:
    """See it work: a private server, a producer, workers and unique jobs, ending with a proof."""
    raise click.ClickException("it is not there yet")
