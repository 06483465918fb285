"""The meter: what jobs themselves tell of when they ran, in memory that worker and bench share.

Start-up of a worker does not count: a rate begins with the first job.
"""

from __future__ import annotations

import mmap
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

STRIDE = 1000  # every so many jobs one is marked: a mark at each would be a part of what is measured
MOST_DELAYS = 1 << 16

_MARKS = struct.Struct("<qddd")  # jobs done when last marked; when the first ran; CPU seconds used then and at the end
_DELAY = struct.Struct("<d")
_COUNT = struct.Struct("<q")
_DELAYS_AT = _MARKS.size + _COUNT.size
_SIZE = _DELAYS_AT + MOST_DELAYS * _DELAY.size


class Meter:
    """One meter, written by one worker process and read by another. Times are those of `time.monotonic()`.

    >>> with Meter() as meter:
    ...     Meter(meter.path).mark(1)
    ...     meter.done
    1
    """

    def __init__(self, path: str | None = None) -> None:
        self._own = path is None
        if path is None:
            with tempfile.NamedTemporaryFile(prefix="fastq-meter-", delete=False) as file:
                file.truncate(_SIZE)
            path = file.name
        self.path = path
        with open(path, "r+b") as shared:
            self._memory = mmap.mmap(shared.fileno(), _SIZE)

    # --- jobs

    def mark(self, done: int) -> None:
        """Note that `done` jobs have run by now; the first call is that of the first job."""
        _, first, cpu_first, cpu_end = _MARKS.unpack_from(self._memory)
        if not first:
            first, cpu_first = time.monotonic(), time.process_time()
        _MARKS.pack_into(self._memory, 0, done, first, cpu_first, cpu_end)

    def end(self) -> None:
        """Note that the worker has ended."""
        done, first, cpu_first, _ = _MARKS.unpack_from(self._memory)
        _MARKS.pack_into(self._memory, 0, done, first, cpu_first, time.process_time())

    def add_delay(self, seconds: float) -> None:
        """Note how long a job waited for its start."""
        count = self.delay_count
        if count < MOST_DELAYS:
            _DELAY.pack_into(self._memory, _DELAYS_AT + count * _DELAY.size, seconds)
            _COUNT.pack_into(self._memory, _MARKS.size, count + 1)

    # --- bench

    @property
    def done(self) -> int:
        """Jobs that had run at the last mark."""
        return int(_MARKS.unpack_from(self._memory)[0])

    @property
    def first(self) -> float:
        """When the first job ran."""
        return float(_MARKS.unpack_from(self._memory)[1])

    @property
    def cpu_seconds(self) -> float:
        """What the worker has used of the CPU from the first job to its end, once it has ended."""
        _, _, first, end = _MARKS.unpack_from(self._memory)
        return float(end - first)

    @property
    def delay_count(self) -> int:
        """How many delays were noted."""
        return int(_COUNT.unpack_from(self._memory, _MARKS.size)[0])

    @property
    def delays(self) -> list[float]:
        """The delays noted, in seconds, sorted."""
        noted = self._memory[_DELAYS_AT : _DELAYS_AT + self.delay_count * _DELAY.size]
        return sorted(delay for (delay,) in _DELAY.iter_unpack(noted))

    def wait(self, reached: Callable[[], bool], *, alive: Callable[[], None], timeout: float) -> None:
        """Look every 5 ms until something is reached; `alive` raises when nobody is left who could. Raises TimeoutError."""
        deadline = time.monotonic() + timeout
        while not reached():
            alive()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.done} jobs and {self.delay_count} delays are marked after {timeout:.0f} s")
            time.sleep(0.005)

    def close(self) -> None:
        """Let go of the memory; its owner removes it."""
        self._memory.close()
        if self._own:
            Path(self.path).unlink(missing_ok=True)

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
