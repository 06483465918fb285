"""The meter: what a worker writes on its board, for the metrics of its fleet.

It counts what was settled, call by call, so that it never differs from what the server has, and has the runner measure how long
jobs wait and run.
"""

from __future__ import annotations

import time
from pathlib import Path

from fastq.worker.board import Board
from fastq.worker.report import Report
from fastq_ext.histogram import Histogram
from fastq_ext.holding import Holding, Line
from fastq_ext.runner import Runner

# Seconds. From the time of a round trip to that of a batch job.
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)

# Keys: (COUNT, queue, task, what), (WAITS | RUNS, queue, task), (PROCESS,)
COUNT, WAITS, RUNS, PROCESS = "count", "waits", "runs", "process"

# The cells of PROCESS. The last two are times on the monotonic clock, which processes share.
SLOTS, RUNNING, FETCHES, STEPPED, WELL_UNTIL = range(5)


class Meter:
    """Measures one worker. `folder` is where its fleet looks for boards. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        self._board = Board(folder)
        self._process = self._board.cells((PROCESS,), 5)

    def measure(self, queue: str, line: Line) -> None:
        """Have the runner measure the jobs of a task on a queue."""
        cells = len(BOUNDS) + 2
        line.waits = Histogram(self._board.cells((WAITS, queue, line.task.name), cells), BOUNDS)
        line.runs = Histogram(self._board.cells((RUNS, queue, line.task.name), cells), BOUNDS)

    def settled(self, queue: str, report: Report) -> None:
        """The server has taken a report."""
        for name, by in report.counters.items():
            what, _, task = name.partition(":")
            if task:
                self._board.cells((COUNT, queue, task, what))[0] += by

    def set_clock(self, holding: Holding) -> None:
        """Note how far the server's clock is ahead of the one that runs are timed by."""
        holding.clock_ahead = holding.now_ms() / 1000 - time.monotonic()

    def step(self, runner: Runner, *, fetches: bool, well_until: float) -> None:
        """Note how the worker is. To be called about once a second."""
        for holding in runner.holdings:
            self.set_clock(holding)
        cells = self._process
        cells[SLOTS], cells[RUNNING] = len(runner.slots), runner.running
        cells[STEPPED], cells[WELL_UNTIL], cells[FETCHES] = time.monotonic(), well_until, fetches

    def close(self) -> None:
        """The worker has ended."""
        self._process[SLOTS] = self._process[RUNNING] = self._process[FETCHES] = 0
        self._board.close()
