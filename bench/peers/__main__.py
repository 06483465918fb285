"""fastq beside other task queues on one private server, in turn.

    python -m bench.peers                                 all of them, medians of five
    python -m bench.peers --only ardiq mayu blitzq        these, and fastq (a quarter of an hour)
    python -m bench.peers --figures drain_1 --runs 3
    python -m bench.peers --json peers.json               with the value of each run

Peers are installed by pip, each in a virtual environment below --home, once. It takes minutes, wants a machine of its own,
and is no part of the tests.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench import environment
from bench.peers.catalogue import FASTQ, PEERS, System
from bench.peers.environments import HOME, Unavailable, install
from bench.peers.loads import LOADS, Figure, Load
from bench.peers.place import LoadFailed, Place
from bench.peers.results import Result, ratios, tables

FIGURES = [figure for load in LOADS for figure in load.figures]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code, which tells nothing of what was measured."""
    names = ", ".join(dict.fromkeys(system.name.split()[0] for system in PEERS))
    parser = argparse.ArgumentParser("python -m bench.peers", description="fastq beside other task queues on one server")
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"these, and fastq: {names}")
    parser.add_argument("--figures", nargs="+", metavar="NAME", help=f"of {', '.join(figure.name for figure in FIGURES)}")
    parser.add_argument("--runs", type=int, default=5, help="how often each is measured (default: 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the load, for a quick look (default: 1)")
    parser.add_argument("--home", type=Path, default=HOME, help=f"where environments are kept (default: {HOME})")
    parser.add_argument("--aof", action="store_true", help="the server keeps an append-only file, synced every second")
    parser.add_argument("--json", type=Path, help="a file to write all values to")
    given = parser.parse_args(arguments)
    environment.refuse_unfit_builds()
    if unknown := set(given.figures or ()) - {figure.name for figure in FIGURES}:
        parser.error(f"there is no figure {', '.join(sorted(unknown))}")
    if unknown := set(given.only or ()) - {part for system in (FASTQ, *PEERS) for part in _names(system)}:
        parser.error(f"there is no system {', '.join(sorted(unknown))}")
    loads = [load for load in LOADS if not given.figures or any(figure.name in given.figures for figure in load.figures)]
    figures = [figure for load in loads for figure in load.figures]
    peers = [system for system in PEERS if not given.only or _names(system) & set(given.only)]

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # whatever was started is ended then, too
    print(*environment.lines(), sep="\n", flush=True)
    results = [_installed(system, given.home) for system in (FASTQ, *peers)]
    with Place(given.aof) as place:
        try:
            for run in range(given.runs):
                _round(place, run, loads, results, given.scale)
        except KeyboardInterrupt:
            _tell(f"interrupted in run {run + 1}")
    print(*environment.lines()[-1:], "", tables(results, figures), sep="\n")
    if given.scale != 1:
        print(f"\nAt {given.scale:g} of the load: a quick look, no comparison.")
    if given.json:
        given.json.write_text(json.dumps(_as_json(results, figures, given), indent=1, ensure_ascii=False) + "\n")
    return 0


def _names(system: System) -> set[str]:
    """What it is called by: its name, and the first word of it, which it shares with its other modes."""
    return {system.name, system.name.split()[0]}


def _installed(system: System, home: Path) -> Result:
    try:
        return Result(system, install(system, home))
    except Unavailable as reason:
        _tell(f"{system.name} is left out: {reason}")
        return Result(system, failures={"all": str(reason)})


def _round(place: Place, run: int, loads: Sequence[Load], results: Sequence[Result], scale: float) -> None:
    """Each load of each system once; which of them begins changes from run to run."""
    first = run % len(results)
    for load in loads:
        for result in (*results[first:], *results[:first]):
            _measure(place, load, result, scale, f"run {run + 1}")


def _measure(place: Place, load: Load, result: Result, scale: float, label: str) -> None:
    failed = any(figure.name in result.failures for figure in load.figures)  # it would only take its time again
    if result.installed is None or failed or not (jobs := load.jobs(result.installed, scale)):
        return
    began = time.monotonic()
    place.clear()
    try:
        values = load.measure(place, result.installed, jobs)
    except LoadFailed as reason:
        result.failures |= {figure.name: str(reason) for figure in load.figures}
        told = f"failed: {reason}"
    else:
        for figure, value in zip(load.figures, values, strict=True):
            result.values.setdefault(figure.name, []).append(value)
        told = ", ".join(f"{value:,.4g} {figure.unit}" for figure, value in zip(load.figures, values, strict=True))
    _tell(f"{label}  {load.name:<16} {result.system.name:<15} {time.monotonic() - began:5.1f} s  {told}")


def _as_json(results: Sequence[Result], figures: Sequence[Figure], given: argparse.Namespace) -> dict[str, object]:
    own, *peers = results
    return {
        "environment": environment.describe(),
        "runs": given.runs,
        "scale": given.scale,
        "aof": given.aof,
        "systems": {result.system.name: result.as_json(figures) for result in results},
        "ratios": {peer.system.name: ratios(own, peer, figures) for peer in peers},
    }


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
