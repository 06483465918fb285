from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from fastq_ext.histogram import Histogram
from fastq_ext.message import Frame

class Line:
    """What a worker knows of one task on one queue.

    `call(*args, **kwargs)` gives the coroutine of a job, `decoder` (fastq.codec.PayloadDecoder) its arguments. `asks`: its jobs
    ask the server before they start. `keeps`: they leave a record when they succeed. `timeout` is in seconds, 0 for none; `mean`
    is how long a job holds its slot.
    """

    mean: float
    waits: Histogram | None  # seconds from when a job was due until its first attempt began; None: not measured
    runs: Histogram | None  # seconds that an attempt took

    def __init__(
        self,
        task: Any,
        name: str,
        call: Callable[..., Any],
        decoder: Any,
        *,
        asks: bool,
        keeps: bool,
        timeout: float,
    ) -> None: ...
    @property
    def task(self) -> Any: ...
    @property
    def timeout(self) -> float: ...

class Entry:
    """One stream entry in a worker's hands. `stream`: 0 the stream, 1 the front, 2 the suspects."""

    def __init__(self, holding: Holding, stream: int, id: bytes, data: bytes) -> None: ...
    @property
    def id(self) -> bytes: ...
    @property
    def stream(self) -> int: ...
    @property
    def frame(self) -> Frame: ...
    @property
    def holding(self) -> Holding: ...
    def is_open(self, place: int) -> bool:
        """Whether the turn of the job at `place` has not ended."""

class Holding:
    """All that a worker has in hand of one queue, under one consumer name.

    `on_touched()` is called when there is something to report after there was nothing; `on_asking()` when a job has to ask.
    """

    heart: Any
    now_ms: Callable[[], int]
    clock_ahead: float
    gate: bool
    dropped: bool
    asking: list[tuple[Entry, int]]
    on_asking: Callable[[], None]
    ended: set[bytes] | None

    def __init__(
        self, keys: Any, worker: bytes, on_touched: Callable[[], None], on_asking: Callable[[], None]
    ) -> None: ...
    @property
    def keys(self) -> Any: ...
    @property
    def worker(self) -> bytes: ...
    @property
    def entries(self) -> dict[bytes, Entry]: ...
    @property
    def lines(self) -> dict[bytes, Line]: ...
    @property
    def ready(self) -> int:
        """Jobs that wait here for a slot."""
    @property
    def on_touched(self) -> Callable[[], None]: ...
    @property
    def touched_any(self) -> bool:
        """Whether a turn has ended that was not reported."""
    def add_line(self, line: Line) -> None:
        """Make a task's jobs known."""
    def add(self, stream: int, id: bytes, data: bytes) -> Entry:
        """Take in a fetched entry; the jobs in it wait for a slot."""
    def take(
        self, stream: int, entries: list[Any]
    ) -> tuple[int, list[Entry | tuple[bytes, list[bytes] | None]]]:
        """Take in the entries of one read, (id, fields) each. Returns how many jobs they hold, and what has to be looked at: the
        Entry of each frame that is not sound to its end, and (id, fields) of each that holds no frame.

        One that is in hand already is passed over: its group was made anew, or this answer was overtaken by another.
        """
    @property
    def unsettled(self) -> int:
        """Jobs whose turn has ended and of which the server does not know yet."""
    @property
    def suspects(self) -> int:
        """Entries of the suspect lane in hand."""
    def done(self, stream: int, id: bytes) -> None:
        """Acknowledge an entry in which there is nothing to run."""
    def clear(self, entry: Entry, place: int, changed: bytes | None = None) -> None:
        """A job that had to ask may start; `changed` is its message, if a later call gave it other arguments."""
    def count(self, name: str, by: int = 1) -> None:
        """Add to one of the queue's counters with the next report."""
    def end(self, entry: Entry, place: int, *outcomes: tuple[Any, ...]) -> None:
        """End the turn of a job. `outcomes`: what there is to do beside acknowledging it (fastq/worker/report.py)."""
    def end_rest(self, entry: Entry, outcome: tuple[Any, ...]) -> None:
        """Report an outcome for what is behind the sound jobs of an entry."""
    def hand_back(self, most: int, per_frame: int) -> int:
        """Give up to `most` of the jobs that wait here, those that would start last, back to the queue, in frames of
        `per_frame`. Returns how many."""
    def hand_back_asking(self) -> None:
        """Give back the jobs that would have to ask before they start."""
    def take_asking(self, most: int) -> list[tuple[Entry, int]]:
        """Up to `most` of the jobs that have to ask, as (Entry, place)."""
    def has_report(self) -> bool:
        """Whether there is anything to report, be it a count."""
    def report(
        self,
    ) -> (
        tuple[
            int,
            tuple[list[bytes], list[bytes], list[bytes]],
            list[bytes],
            list[bytes],
            bytes,
            list[bytes],
            dict[str, int],
            list[tuple[Any, ...]],
            int,
        ]
        | None
    ):
        """What has ended since the last report, at most one call's worth (fastq/worker/report.py); None if there is nothing."""
    def settled(self, finished: list[bytes], jobs: int) -> None:
        """The server has a report: forget the entries that it finished, and count its jobs as settled."""
    def watch_ends(self) -> AbstractContextManager[set[bytes]]:
        """The ids of the entries that end within the block, which an older answer of the server may still name."""
