"""Each figure of the issues beside its bound.

    python -m bench.accept                     all figures that an issue bounds, medians of five
    python -m bench.accept --issue 2           those of one issue
    python -m bench.accept --only drain --runs 1
    python -m bench.accept --issue 6 --aof     with an append-only file

Exit code 1 when a bound is missed. It takes minutes, wants a machine of its own, and is no part of the tests.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence

from bench import environment
from bench.figure import Figure, Runs, measure
from bench.figures import ALL

HEAD = f"{'issue':>5}  {'figure':<22} {'fastq':>12} {'reference':>12} {'unit':<7} {'judged':>7} {'bound':>8}  runs"


def rows(figures: Sequence[Figure], issue: int | None) -> list[tuple[int, Figure, float]]:
    """(issue, figure, bound) for each bound asked for, by issue."""
    found = [(number, figure, bound) for figure in figures for number, bound in figure.bounds.items()]
    return sorted((row for row in found if issue in (None, row[0])), key=lambda row: row[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser("python -m bench.accept", description="each figure of the issues beside its bound")
    parser.add_argument("--issue", type=int, help="the figures of this issue (default: of all)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="figures whose name has one of these in it")
    parser.add_argument("--runs", type=int, default=5, help="how often each is measured (default: 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the load, for a quick look (default: 1)")
    parser.add_argument("--aof", action="store_true", help="the server keeps an append-only file, synced every second")
    given = parser.parse_args(arguments)
    environment.refuse_unfit_builds()
    asked = [figure for figure in ALL if not given.only or any(part in figure.name for part in given.only)]
    table = rows(asked, given.issue)
    if not table:
        parser.error("there is no such figure: " + ", ".join(figure.name for figure in ALL if figure.bounds))
    print(*environment.lines(), sep="\n", flush=True)
    figures = [figure for figure in asked if any(row[1] is figure for row in table)]
    taken = measure(figures, given.runs, given.scale, aof=given.aof)
    print(*environment.lines()[-1:], "", HEAD, sep="\n")
    missed = 0
    for issue, figure, bound in table:
        runs = taken[figure.name]
        met = figure.meets(runs.judged, bound)
        missed += not met
        print(_row(issue, figure, runs, bound), "met" if met else "MISSED", flush=True)
    if given.aof:
        print("\nOn a server with appendonly yes, appendfsync everysec: to be read beside the figures without.")
    if given.scale != 1:
        print(f"\nAt {given.scale:g} of the load: a quick look, not the figures of the issues.")
    return 1 if missed else 0


def _row(issue: int, figure: Figure, runs: Runs, bound: float) -> str:
    reference = _short(statistics.median(runs.reference)) if runs.reference else ""
    sign = "<=" if figure.less_is_better else ">="
    return (
        f"{issue:>5}  {figure.name:<22} {_short(statistics.median(runs.own)):>12} {reference:>12} {figure.unit:<7}"
        f" {runs.judged:>7.2f} {sign:>3} {bound:<4g}  {_short(min(runs.own))}-{_short(max(runs.own))} "
    )


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
