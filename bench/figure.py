"""What a figure is: something measured, what is measured beside it, and what the issues ask of it."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.stage import Stage

Measure = Callable[[Stage], float]


@dataclass(frozen=True)
class Figure:
    """One figure, judged by its ratio to the `reference` that is measured in the same run; without one, as it is.

    `bounds`: by the number of an issue, the least that the judged value may be, or the most when `less_is_better`.
    `once`: heavy and the same in every run, so it is measured once. `steady`: it holds still enough to be compared with
    a baseline.
    """

    name: str
    unit: str
    measure: Measure
    reference: Measure | None = None
    less_is_better: bool = False
    bounds: Mapping[int, float] = field(default_factory=dict)
    once: bool = False
    steady: bool = True

    def meets(self, judged: float, bound: float) -> bool:
        """Whether a judged value is as good as a bound."""
        return judged <= bound if self.less_is_better else judged >= bound


@dataclass
class Runs:
    """The values of one figure, run by run."""

    own: list[float] = field(default_factory=list)
    reference: list[float] = field(default_factory=list)

    @property
    def judged(self) -> float:
        """The median, divided by the reference's if there is one."""
        own = statistics.median(self.own)
        return own / statistics.median(self.reference) if self.reference else own


def measure(
    figures: Sequence[Figure],
    runs: int,
    scale: float = 1.0,
    *,
    aof: bool = False,
) -> dict[str, Runs]:
    """Measure figures and references in turn, `runs` times, on one private server; how far it is goes to stderr."""
    taken = {figure.name: Runs() for figure in figures}
    with Stage(scale, aof=aof) as stage:
        for run in range(runs):
            stage.new_round()
            for figure in figures:
                if run and figure.once:
                    continue
                began = time.monotonic()
                _measure_once(figure, stage, taken[figure.name], reference_first=bool(run % 2))
                took = f"{time.monotonic() - began:6.1f} s"
                print(f"run {run + 1} of {runs}  {figure.name:<20} {took}", file=sys.stderr, flush=True)
    return taken


def _measure_once(figure: Figure, stage: Stage, runs: Runs, *, reference_first: bool) -> None:
    if figure.reference is not None and reference_first:
        runs.reference.append(figure.reference(stage))
    runs.own.append(figure.measure(stage))
    if figure.reference is not None and not reference_first:
        runs.reference.append(figure.reference(stage))
