"""Running what waits, in this process and fast: a worker without the process that beats for it."""

import asyncio

from fastq import FastQ
from fastq.worker.rehearsal import NoHeart
from fastq.worker.worker import Worker


class BriefWorker(Worker):
    """A worker for as long as a test, in which nobody judges it."""

    heart_type = NoHeart


def burst(app: FastQ, queues: list[str] | None = None) -> None:
    """Run all that waits, is due within a second, or comes of it; in these queues, or in all of the app's."""
    asyncio.run(BriefWorker(app, burst=True, queues=queues).arun())
