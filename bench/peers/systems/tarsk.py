"""tarsk: a supervisor in Rust, with children in Python."""

from __future__ import annotations

from tarsk import App

from bench.peers.child import TEXT, URL, Producer, run_program
from bench.peers.tally import count, delay

app = App(broker=URL)


@app.task(name="noop")
async def noop(number: int, text: str) -> None:
    """Do nothing but count."""
    count()


@app.task(name="once", unique=86_400)
async def once(number: int, text: str) -> None:
    """The same, unique."""
    count()


@app.task(name="lag")
async def lag(number: int, text: str) -> None:
    """Tell how long it waited."""
    delay(number)


TASKS = {"noop": noop, "once": once, "lag": lag}


def _one(task: str, number: int) -> None:
    TASKS[task].send(number, TEXT)


producer = Producer(_one, threads=8)  # its client waits without the GIL


def work(processes: int) -> None:
    """Run jobs until SIGTERM."""
    options = ["--children", str(processes), "--slots", "100"]
    run_program("tarsk._cli", "worker", "--app", f"{__name__}:app", "--broker", URL, "--queues", "default", *options)
