"""Orphans: what a process with pid 1 has to wait for although it has not started it."""

from __future__ import annotations

import os
from collections.abc import Collection


def reap(ours: Collection[int]) -> None:
    """Wait for ended children that are not among `ours`, whose ends are somebody else's to see."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in ours:
            return
        os.waitpid(ended.si_pid, 0)
