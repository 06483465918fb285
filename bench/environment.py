"""What a measurement was taken on, and whether it may be taken at all."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

import fastq_ext
from tests.support import servers

ROOT = Path(__file__).parents[1]
_LIBRARIES = ("redis", "hiredis", "msgspec", "uvloop", "Cython")


def refuse_unfit_builds() -> None:
    """Stop with one line when the extensions are stale or a debug build: their figures would mean nothing.

    Raises:
        SystemExit: with what to do instead.
    """
    fastq_ext.check_fresh()
    if fastq_ext.DEBUG:
        raise SystemExit("this is a debug build (FASTQ_DEBUG_BUILD=1), which is checked and slow: measure a usual one")


def describe() -> dict[str, str]:
    """Machine, Python, server, libraries, commit and load, for people to read."""
    load = ", ".join(f"{average:.2f}" for average in os.getloadavg())
    return {
        "machine": f"{_cpu()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "server": _server(),
        "libraries": ", ".join(f"{name} {version}" for name in _LIBRARIES if (version := _version(name))),
        "commit": _commit(),
        "load": f"{load} (1, 5, 15 min)",
    }


def lines() -> list[str]:
    """`describe()` in lines."""
    return [f"{name:>9}: {text}" for name, text in describe().items()]


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _server() -> str:
    binary = servers.first_found()
    return f"{binary.name} {'.'.join(map(str, binary.version))}" if binary else "none found"


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _commit() -> str:
    """The commit, with a plus when what is measured differs from it."""
    head = _git("rev-parse", "--short=12", "HEAD")
    return head + ("+" if _git("status", "--porcelain", "--", "fastq", "fastq_ext") else "") if head else "unknown"


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
