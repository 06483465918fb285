"""Compares what is measured now, or was measured before, with a baseline.

    python -m bench.compare                        a short set of figures against bench/baseline.json
    python -m bench.compare --update               writes the baseline anew
    python -m bench.compare old.json new.json      two files of pytest-benchmark (--benchmark-json)

What is compared is the ratio of each figure to a reference measured in the same run, so a slower machine is no
regression. Exit code 1 when one is worse by more than the threshold.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BASELINE = Path(__file__).parent / "baseline.json"
THRESHOLD = 0.15
SCALE = 0.5
REFERENCE_BENCHMARK = "test_reference"  # the suites' own; see bench/bench_hash.py


@dataclass(frozen=True)
class Change:
    """A judged value before and now. `worse`: by which share; negative when it got better."""

    name: str
    before: float | None
    now: float
    less_is_better: bool

    @property
    def worse(self) -> float:
        """By which share it got worse."""
        if self.before is None:
            return 0.0
        return self.now / self.before - 1 if self.less_is_better else self.before / self.now - 1


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser("python -m bench.compare", description="compare with the baseline, or two files")
    parser.add_argument("files", nargs="*", type=Path, help="an old and a new file of pytest-benchmark")
    parser.add_argument("--update", action="store_true", help="write the baseline anew")
    parser.add_argument("--threshold", type=float, default=THRESHOLD, help="share that counts as worse (default: 0.15)")
    parser.add_argument("--runs", type=int, default=3, help="how often each is measured (default: 3)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="figures whose name has one of these in it")
    given = parser.parse_args(arguments)
    if len(given.files) == 2:
        return _tell(compare_files(*given.files), given.threshold)
    if given.files:
        parser.error("give two files, or none")
    return _compare_now(given)


# --- now against the baseline


def _compare_now(given: argparse.Namespace) -> int:
    from bench import environment
    from bench.figure import measure
    from bench.figures import ALL

    environment.refuse_unfit_builds()
    baseline = json.loads(BASELINE.read_text()) if BASELINE.exists() else {"figures": {}}
    figures = [figure for figure in ALL if figure.steady]
    if given.only:
        figures = [figure for figure in figures if any(part in figure.name for part in given.only)]
    print(*environment.lines(), sep="\n", flush=True)
    taken = measure(figures, given.runs, SCALE)
    changes = []
    for figure in figures:
        runs = taken[figure.name]
        before = baseline["figures"].get(figure.name, {}).get("judged")
        changes.append(Change(figure.name, before, runs.judged, figure.less_is_better))
        baseline["figures"][figure.name] = {
            "judged": _digits(runs.judged),
            "own": _digits(statistics.median(runs.own)),
            "reference": _digits(statistics.median(runs.reference)) if runs.reference else None,
            "unit": figure.unit,
        }
    failed = _tell(changes, given.threshold)
    if given.update:
        names = {figure.name for figure in ALL}
        baseline["figures"] = {name: value for name, value in baseline["figures"].items() if name in names}
        baseline = {"taken on": environment.describe(), "scale": SCALE, "figures": baseline["figures"]}
        BASELINE.write_text(json.dumps(baseline, indent=2) + "\n")
        return 0
    return failed


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


# --- two files of pytest-benchmark


def compare_files(old: Path, new: Path) -> list[Change]:
    """The benchmarks that both files have, by their medians, over that of the reference in the same file if both have it."""
    before, now = (_medians(json.loads(path.read_text())) for path in (old, new))
    if REFERENCE_BENCHMARK in before and REFERENCE_BENCHMARK in now:
        before, now = _by_reference(before), _by_reference(now)
    return [Change(name, before[name], now[name], less_is_better=True) for name in now if name in before]


def _medians(saved: Mapping[str, Any]) -> dict[str, float]:
    return {benchmark["name"]: benchmark["stats"]["median"] for benchmark in saved["benchmarks"]}


def _by_reference(medians: Mapping[str, float]) -> dict[str, float]:
    pace = medians[REFERENCE_BENCHMARK]
    return {name: median / pace for name, median in medians.items() if name != REFERENCE_BENCHMARK}


# ---


def _tell(changes: Sequence[Change], threshold: float) -> int:
    """Print a table; 1 when something is worse past the threshold."""
    worse = 0
    print(f"{'figure':<40} {'before':>10} {'now':>10} {'change':>8}")
    for change in changes:
        past = change.worse > threshold
        worse += past
        before = f"{change.before:.4g}" if change.before is not None else "new"
        share = f"{-change.worse:+.0%}" if change.before is not None else ""
        print(f"{change.name:<40} {before:>10} {change.now:>10.4g} {share:>8} {'WORSE' if past else ''}".rstrip())
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
