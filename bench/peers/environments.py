"""A virtual environment for each system, made once and kept."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.peers.catalogue import System
from bench.peers.child import ROOT

HOME = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fastq-peers"

_MADE = "made-of.json"  # written when all is in, so that an installation that was cut short is begun anew
_LOOK = """
import json, platform, sys
from importlib import metadata
print(json.dumps([platform.python_version(), {name: metadata.version(name) for name in sys.argv[1:]}]))
"""


class Unavailable(Exception):
    """A system cannot be had here; the reason."""


@dataclass(frozen=True)
class Installed:
    """A system as it is installed: the Python to run it with, where that finds modules (besides), and versions."""

    system: System
    python: str
    path: str
    python_version: str
    versions: dict[str, str]


def install(system: System, home: Path) -> Installed:
    """A system in its environment below `home`, which is made now if there is none. Raises Unavailable."""
    if not system.packages:  # fastq, as it was found by whoever measures
        path = os.pathsep.join(filter(None, [*sys.path, ROOT]))
        return _look(system, sys.executable, ["redis", "hiredis", "msgspec", "uvloop"], path)
    base = _find_python(system.python)
    if base is None:
        raise Unavailable("it needs Python {}.{}, which is not here".format(*system.python))
    folder = home / f"{system.distributions[0]}-{_version_of(base)}"
    python = str(folder / "bin" / "python")
    if not _is_made_of(folder, system.packages):
        print(f"installing {', '.join(system.packages)} in {folder}", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        _run([base, "-m", "venv", str(folder)])
        _run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *system.packages])
        (folder / _MADE).write_text(json.dumps(system.packages))
    return _look(system, python, system.distributions, "")


def _is_made_of(folder: Path, packages: tuple[str, ...]) -> bool:
    try:
        return bool(json.loads((folder / _MADE).read_text()) == list(packages))
    except (OSError, ValueError):
        return False


def _look(system: System, python: str, distributions: list[str], path: str) -> Installed:
    output = _run([python, "-P", "-c", _LOOK, *distributions], path)
    return Installed(system, python, path, *json.loads(output))


def _find_python(least: tuple[int, int]) -> str | None:
    """This Python if it is new enough, else one of just that version."""
    if sys.version_info >= least:
        return sys.executable
    wanted = "{}.{}".format(*least)
    return next((path for path in _candidates(wanted) if _version_of(path) == wanted), None)


def _candidates(version: str) -> Iterator[str]:
    if on_path := shutil.which(f"python{version}"):
        yield on_path
    kept = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    yield from map(str, sorted(kept.glob(f"{version}*/bin/python3"), reverse=True))


@functools.cache
def _version_of(python: str) -> str:
    """Its version, like 3.13; empty when it does not run."""
    try:
        return _run([python, "-c", "import sys; print('{}.{}'.format(*sys.version_info))"]).strip()
    except Unavailable:
        return ""


def _run(command: list[str], path: str = "") -> str:
    try:
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Unavailable(str(error)) from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise Unavailable(next((line for line in lines if line.startswith("ERROR")), lines[-1] if lines else "no reason given"))
    return done.stdout
