"""Mayu: synchronous producers and threads, on a Rust core."""

from __future__ import annotations

from mayu import App

from bench.peers.child import TEXT, URL, Producer, run_program
from bench.peers.tally import count_in_thread, delay

app = App(broker=URL)


@app.task(name="noop")
def noop(number: int, text: str) -> None:
    """Do nothing but count."""
    count_in_thread()


@app.task(name="lag")
def lag(number: int, text: str) -> None:
    """Tell how long it waited."""
    delay(number)


TASKS = {"noop": noop, "lag": lag}


def _one(task: str, number: int) -> None:
    TASKS[task].send(number, TEXT)


producer = Producer(_one, threads=8)  # its client waits without the GIL


def work(processes: int) -> None:
    """Run jobs until SIGTERM."""
    options = ["--mode", "thread", "--threads", "2", "--prefetch-multiplier", "500", "--log-level", "WARNING"]
    run_program("mayu", "worker", f"{__name__}:app", *options)
