"""What was measured, and the tables that people read."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.peers.catalogue import System
from bench.peers.environments import Installed
from bench.peers.loads import Figure

NONE = "\N{EN DASH}"


@dataclass
class Result:
    """One system's values by figure, run by run, and why figures (or all of it) failed."""

    system: System
    installed: Installed | None = None
    values: dict[str, list[float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def median(self, figure: Figure) -> float | None:
        """None when nothing was measured."""
        values = self.values.get(figure.name)
        return statistics.median(values) if values else None

    @property
    def version(self) -> str:
        """The system's own; "here" is the fastq of this Python."""
        if self.installed is None:
            return NONE
        return self.installed.versions[self.system.distributions[0]] if self.system.packages else "here"

    def as_json(self, figures: Iterable[Figure]) -> dict[str, Any]:
        """All of it, plain."""
        return {
            "version": self.version,
            "python": self.installed.python_version if self.installed else None,
            "versions": self.installed.versions if self.installed else {},
            "settings": self.system.settings,
            "figures": {
                figure.name: {
                    "median": self.median(figure),
                    "min": min(values),
                    "max": max(values),
                    "runs": values,
                    "unit": figure.unit,
                }
                for figure in figures
                if (values := self.values.get(figure.name))
            },
            "failed": self.failures,
        }


def ratios(own: Result, peer: Result, figures: Iterable[Figure]) -> dict[str, float]:
    """fastq's median divided by the peer's, for each figure that both have."""
    pairs = ((figure.name, own.median(figure), peer.median(figure)) for figure in figures)
    return {name: mine / theirs for name, mine, theirs in pairs if mine and theirs}


def tables(results: Sequence[Result], figures: Sequence[Figure]) -> str:
    """Medians, ratios, reasons of failures, settings and versions. The first result is fastq's."""
    head = ["system", "version", "Python", *(figure.heading for figure in figures)]
    rows = [
        [
            result.system.name,
            result.version,
            result.installed.python_version if result.installed else NONE,
            *(_cell(result, figure) for figure in figures),
        ]
        for result in results
    ]
    parts = ["Medians; jobs a second, but for server us and bytes (per job) and p50, p99 (ms).", _aligned([head, *rows])]
    own, *peers = results
    if peers:
        parts += ["fastq divided by each (server us, bytes, ms: below 1 is less).", _aligned(_ratio_rows(own, peers, figures))]
    if notes := [note for result in results for note in _notes(result)]:
        parts.append("\n".join(["Failed:", *notes]))
    parts.append("\n".join(["Settings:", *(_settings(result) for result in results)]))
    return "\n\n".join(parts)


def _ratio_rows(own: Result, peers: Iterable[Result], figures: Sequence[Figure]) -> list[list[str]]:
    rows = [["fastq /", *(figure.heading for figure in figures)]]
    for peer in peers:
        found = ratios(own, peer, figures)
        rows.append([peer.system.name, *(_short(found.get(figure.name)) for figure in figures)])
    return rows


def _cell(result: Result, figure: Figure) -> str:
    median = result.median(figure)
    return "failed" if median is None and figure.name in result.failures else _short(median)


def _short(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _notes(result: Result) -> list[str]:
    """A line for each reason, with what failed for it."""
    whats: dict[str, list[str]] = {}
    for what, why in result.failures.items():
        whats.setdefault(why, []).append(what)
    return [f"{result.system.name}, {', '.join(found)}: {why}" for why, found in whats.items()]


def _settings(result: Result) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in (result.installed.versions if result.installed else {}).items())
    return f"{result.system.name}: {result.system.settings}" + (f" [{versions}]" if versions else "")


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns below each other, the first to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))])
        for first, *rest in rows
    )
