"""Limits: when a child has done enough, and another one is to take its place."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from fastq.config import check_count, check_seconds
from fastq.fleet.child import Child

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What a child may reach before it is replaced: jobs, seconds of life, MiB of resident memory. None: no limit.

    It goes on until its successor serves, so a limit is passed by what is done meanwhile. Raises ConfigError.

    >>> Limits(max_jobs=10_000, max_age=86_400)
    Limits(max_jobs=10000, max_age=86400.0, max_rss=None)
    """

    max_jobs: int | None = None
    max_age: float | None = None
    max_rss: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_jobs", "max_rss"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), least=1)
        if self.max_age is not None:
            object.__setattr__(self, "max_age", check_seconds("max_age", self.max_age, least=1))

    def reached_by(self, child: Child) -> str | None:
        """Which limit a child has reached, in words."""
        if self.max_jobs is not None and child.finished >= self.max_jobs:
            return f"has run {child.finished} jobs"
        if self.max_age is not None and (age := time.monotonic() - child.begun) >= self.max_age:
            return f"is {age:.0f} s old"
        if self.max_rss is not None and (rss := resident(child.pid)) >= self.max_rss * MIB:
            return f"uses {rss // MIB} MiB of memory"
        return None


def resident(pid: int) -> int:
    """Bytes of memory that a process has; 0 when it cannot be told."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # no /proc here
        shown = subprocess.run(["/bin/ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return int(shown.stdout) * 1024
    return 0
