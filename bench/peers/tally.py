"""What jobs tell of their runs: how many, the first and the last, in memory that any number of worker processes share.

A process of a worker has a few numbers of its own there, so a job takes no lock of another process and makes no system
call. Standard library only: every system's Python imports this.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

PATH = "FASTQ_PEERS_TALLY"  # in the environment of a worker
_PROCESSES = 64  # the most that can tell
_CELLS = 8  # numbers a process, of which three are used: a cache line that no other process writes to
_SIZE = (1 + _PROCESSES) * _CELLS * 8  # the first row has how many processes there are
_DELAY = struct.Struct("=q")

_row: memoryview | None = None
_done = 0
_lock = threading.Lock()
_delays = -1


# --- jobs


def count() -> None:
    """A job runs, where one thread runs them all."""
    global _done
    now = time.monotonic_ns()
    row = _row or _take_row(now)
    _done += 1
    row[0], row[2] = _done, now


def count_in_thread() -> None:
    """A job runs, where several threads run them."""
    with _lock:
        count()


def delay(sent_ns: int) -> None:
    """A job runs that was enqueued at `sent_ns`, by time.monotonic_ns()."""
    global _delays
    waited = time.monotonic_ns() - sent_ns
    if _delays < 0:
        _delays = os.open(_delays_of(os.environ[PATH]), os.O_WRONLY | os.O_APPEND)
    os.write(_delays, _DELAY.pack(waited))


def _take_row(now: int) -> memoryview:
    global _row, _done
    with open(os.environ[PATH], "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        cells = memoryview(mmap.mmap(file.fileno(), _SIZE)).cast("q")
        number = cells[0] = cells[0] + 1
        fcntl.flock(file, fcntl.LOCK_UN)  # closing the file would not: the memory keeps it open
    _row, _done = cells[number * _CELLS : (number + 1) * _CELLS], 0
    _row[1] = now
    return _row


def _forget() -> None:
    global _row
    _row = None


os.register_at_fork(after_in_child=_forget)  # a forked process takes a row of its own


# --- bench


class Count(NamedTuple):
    """How many jobs have run, and when the first and the last of them began, by time.monotonic_ns()."""

    done: int
    first: int
    last: int


class Tally:
    """The memory that one worker is given, for the time of a `with`."""

    def __init__(self) -> None:
        with tempfile.NamedTemporaryFile(prefix="fastq-tally-", delete=False) as file:
            file.truncate(_SIZE)
        self.path = file.name
        Path(_delays_of(self.path)).touch()
        with open(self.path, "r+b") as shared:
            self._cells = memoryview(mmap.mmap(shared.fileno(), _SIZE)).cast("q")

    def count(self) -> Count:
        """What the jobs have told so far."""
        rows = [self._cells[row * _CELLS : row * _CELLS + 3].tolist() for row in range(1, self._cells[0] + 1)]
        told = [row for row in rows if row[0]]
        if not told:
            return Count(0, 0, 0)
        return Count(sum(row[0] for row in told), min(row[1] for row in told), max(row[2] for row in told))

    @property
    def delay_count(self) -> int:
        """How many delays were told."""
        return os.path.getsize(_delays_of(self.path)) // _DELAY.size

    def delays(self) -> list[float]:
        """The delays told, in seconds, sorted."""
        return sorted(waited / 1e9 for (waited,) in _DELAY.iter_unpack(Path(_delays_of(self.path)).read_bytes()))

    def __enter__(self) -> Tally:
        return self

    def __exit__(self, *exc: object) -> None:
        Path(self.path).unlink(missing_ok=True)
        Path(_delays_of(self.path)).unlink(missing_ok=True)


def _delays_of(path: str) -> str:
    return path + ".delays"
