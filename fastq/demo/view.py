"""What is seen of a run: a table that moves on a terminal, a line a second elsewhere."""
from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol, Self

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.constrain import Constrain
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fastq.demo.ledger import ran
from fastq.demo.run import Run

BLOCKS = "▁▂▃▄▅▆▇█"
WIDEST = 100  # columns
PACE_OVER = 0.5  # seconds


class View(Protocol):
    """Shows a run, again every `period` seconds; to be used with `with`."""

    period: float

    def update(self, run: Run) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...


def view_for(console: Console, title: str) -> View:
    """The view that fits where the output goes."""
    live = console.is_terminal and not console.is_dumb_terminal
    return LiveView(console, title) if live else LineView(console, title)


class LineView:
    """A line every second."""

    period = 1.0

    def __init__(self, console: Console, title: str) -> None:
        self._console, self._title = console, title
        self._pace = Pace()

    def update(self, run: Run) -> None:
        """Print how far it is."""
        self._pace.note(run.runs)
        parts = [
            f"{time.monotonic() - run.begun:5.1f} s: {run.calls.total():,} calls",
            f"{run.refused:,} refused as duplicates",
            f"{run.runs:,} of {run.planned:,} ran, {self._pace.now:,.0f}/s",
            f"{run.retries:,} retries, {run.dead:,} dead",
        ]
        if run.waits:
            parts.append(f"single jobs start after {times(run.waits)}")
        self._console.out("; ".join(parts), highlight=False)

    def __enter__(self) -> Self:
        self._console.out(self._title, highlight=False)
        return self

    def __exit__(self, *exc: object) -> None:
        pass


class LiveView:
    """A table that moves."""

    period = 0.1

    def __init__(self, console: Console, title: str) -> None:
        self._title = title
        self._pace = Pace()
        self._live = Live(console=console, auto_refresh=False)

    def update(self, run: Run) -> None:
        """Draw it anew."""
        self._pace.note(run.runs)
        self._live.update(self._draw(run), refresh=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def _draw(self, run: Run) -> RenderableType:
        plan, ledger, pace = run.plan, run.ledger, self._pace
        head = Table.grid(expand=True)
        head.add_column()
        head.add_column(justify="right", style="dim")
        head.add_row(Text(self._title, "bold"), f"{time.monotonic() - run.begun:.1f} s")
        rows = Table.grid(padding=(0, 2, 0, 0), expand=True)
        rows.add_column(no_wrap=True)
        rows.add_column(ratio=1)
        rows.add_column(justify="right", no_wrap=True)
        rows.add_column(style="dim", no_wrap=True, width=31)
        enqueued = f"at {run.bulk_rate:,.0f}/s" if run.bulk_rate else f"{run.calls['plain']:,}"
        refused = f"{run.refused:,} duplicates refused" if run.refused else f"{run.calls['unique']:,} calls"
        rows.add_row("plain", *_progress(ran(ledger.plain), plan.plain), f"enqueued {enqueued}")
        rows.add_row("unique", *_progress(ran(ledger.unique), plan.unique), refused)
        rows.add_row("delayed", *_progress(ran(ledger.delayed), plan.delayed), times(run.late, "late"))
        rows.add_row("failing", *_progress(run.ended, plan.failing), f"{run.retries:,} retries, {run.dead:,} dead")
        rows.add_row("single", "", f"{ran(ledger.single):,}", times(run.waits, "to start"))
        rows.add_row("pace", Sparkline(pace.series), f"{pace.now:,.0f}/s", f"{pace.best:,.0f}/s at best")
        body = Group(head, Text(), rows)
        return Constrain(Padding(body, (1, 2)), WIDEST)


class Sparkline:
    """A series drawn in one line: all of it, in the width that there is."""

    def __init__(self, series: Sequence[float]) -> None:
        self._series = series

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.ascii_only or not self._series:
            return
        columns = min(options.max_width, len(self._series))
        edges = [len(self._series) * column // columns for column in range(columns + 1)]
        means = [sum(self._series[a:b]) / (b - a) for a, b in pairwise(edges)]
        highest = max(means) or 1.0
        yield Text("".join(BLOCKS[min(7, int(8 * mean / highest))] for mean in means), "cyan", no_wrap=True)


class Pace:
    """Jobs a second, from how many had run when."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self.now = 0.0
        self.best = 0.0
        self.series: list[float] = []

    def note(self, runs: int) -> None:
        """So many have run by now."""
        now = time.monotonic()
        self._seen.append((now, runs))
        while len(self._seen) > 2 and now - self._seen[1][0] >= PACE_OVER:
            self._seen.popleft()
        since, before = self._seen[0]
        self.now = (runs - before) / max(now - since, PACE_OVER)
        self.best = max(self.best, self.now)
        self.series.append(self.now)


def times(micros: Sequence[int], what: str = "") -> str:
    """The median and the 99th percentile of times that are given in µs.

    >>> times([900, 1000, 25_000], "late")
    '1.0 ms late, p99 25 ms'
    """
    if not micros:
        return ""
    ordered = sorted(micros)
    middle, high = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    return " ".join(filter(None, (_ms(middle), what))) + f", p99 {_ms(high)}"


def _ms(micros: int) -> str:
    return f"{micros / 1000:.1f} ms" if micros < 10_000 else f"{micros / 1000:,.0f} ms"


def _progress(done: int, planned: int) -> tuple[RenderableType, str]:
    bar = ProgressBar(planned, done, complete_style="cyan", finished_style="green")
    return bar, f"{done:,} / {planned:,}"
