"""What ran, counted outside Redis: a file that all processes of the demo share as memory."""
from __future__ import annotations

import mmap
import os
from pathlib import Path

from fastq.demo.plan import MOST_SINGLES, Plan

LAYOUT = ("late", "waits", "plain", "unique", "delayed", "failing", "single")


class Ledger:
    """A byte for each job, which counts its runs, by kind; and two kinds of times, in µs.

    `late` says for each delayed job how long after its time it started, `waits` for each single one how long after it
    was enqueued. Runs of one job never overlap when all is well; when they do, both are still counted unless they add
    to the same byte within the same instant.
    """

    late: memoryview[int]
    waits: memoryview[int]
    plain: memoryview[int]
    unique: memoryview[int]
    delayed: memoryview[int]
    failing: memoryview[int]
    single: memoryview[int]

    def __init__(self, path: Path, plan: Plan) -> None:
        """Open the file of a plan, which is made if need be."""
        sizes = {
            "late": 4 * plan.delayed,
            "waits": 4 * MOST_SINGLES,
            "plain": plan.plain,
            "unique": plan.unique,
            "delayed": plan.delayed,
            "failing": plan.failing,
            "single": MOST_SINGLES,
        }
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, sum(sizes.values()))
            everything = memoryview(mmap.mmap(fd, sum(sizes.values())))
        finally:
            os.close(fd)
        at = 0
        for name, size in sizes.items():
            part = everything[at : at + size]
            setattr(self, name, part.cast("i") if name in ("late", "waits") else part)
            at += size


def ran(runs: memoryview[int]) -> int:
    """How many jobs of a kind have run."""
    return len(runs) - bytes(runs).count(0)
