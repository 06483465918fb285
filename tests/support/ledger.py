"""What really ran, written outside Redis: one file that job bodies in any process append to, and verdicts over it.

    ledger = Ledger(path)
    with ledger.run(key, attempt):      # in the job's body
        ...
    ledger.read().missing(keys)         # in the test

A line is written by one O_APPEND write, so lines of different processes never mix and none is lost with its process.
"""

import contextlib
import itertools
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

_serial = itertools.count()
VARIABLE = "FASTQ_TEST_LEDGER"  # how a worker process is told the file


@dataclass(frozen=True)
class Run:
    """One run of a job's body. Times are CLOCK_MONOTONIC ns, the same in every process; `ended` None: it was killed.

    `lines`: of its start and its end, in the order in which the file took them.
    """

    key: str
    attempt: int
    pid: int
    started: int
    ended: int | None
    fence: int = 0
    lines: tuple[int, int] = (0, 0)


class Ledger:
    """The file, for writing. Cheap enough for a hundred thousand jobs; safe in threads and after a fork."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    @staticmethod
    def here() -> "Ledger":
        """The ledger that the environment names: for job bodies in a worker process."""
        return _named(os.environ[VARIABLE])

    @property
    def environment(self) -> dict[str, str]:
        """What to add to the environment of a worker, for `Ledger.here()`."""
        return {VARIABLE: str(self.path)}

    def start(self, key: object, attempt: int = 1, fence: int = 0) -> str:
        """Note that a run begins; the token returned is for `end`."""
        token = f"{os.getpid()}-{next(_serial)}-{time.monotonic_ns()}"  # pids come again
        self._write(token, "start", key, attempt, fence)
        return token

    def end(self, token: str) -> None:
        """Note that the run ends."""
        self._write(token, "end", "", 0, 0)

    @contextlib.contextmanager
    def run(self, key: object, attempt: int = 1, fence: int = 0) -> Iterator[None]:
        """Both; a run that ends with an exception or is cancelled has an end too, one that is killed has none."""
        token = self.start(key, attempt, fence)
        try:
            yield
        finally:
            self.end(token)

    def _write(self, token: str, event: str, key: object, attempt: int, fence: int) -> None:
        line = f"{token}\t{event}\t{time.monotonic_ns()}\t{attempt}\t{fence}\t{key}\n"
        assert (line.count("\n"), line.count("\t")) == (1, 5), f"a tab or a newline in {key!r}"
        os.write(self._fd, line.encode())

    def read(self) -> "Reading":
        return Reading.of(self.path)

    def close(self) -> None:
        os.close(self._fd)


@cache
def _named(path: str) -> Ledger:
    return Ledger(path)


class Reading:
    """The ledger as it was when it was read."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self.runs = list(runs)

    @classmethod
    def of(cls, path: str | Path) -> "Reading":
        started: dict[str, Run] = {}
        text = Path(path).read_text()
        # The file may be seen while a line is being written: the last one counts when it is whole.
        for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines()):
            token, event, when, attempt, fence, key = line.split("\t")
            if event == "start":
                run = Run(key, int(attempt), int(token.split("-")[0]), int(when), None, int(fence), (number, -1))
            else:
                run = replace(begun := started[token], ended=int(when), lines=(begun.lines[0], number))
            started[token] = run
        return cls(started.values())

    @property
    def starts(self) -> Counter[str]:
        """How often each key was started."""
        return Counter(run.key for run in self.runs)

    @property
    def ends(self) -> Counter[str]:
        """How often each key was run to its end."""
        return Counter(run.key for run in self.runs if run.ended is not None)

    def missing(self, keys: Iterable[object]) -> set[str]:
        """Those of the keys that were never run to their end."""
        return {str(key) for key in keys} - self.ends.keys()

    def repeated(self) -> dict[str, int]:
        """Keys that were started more than once, with how often."""
        return {key: count for key, count in self.starts.items() if count > 1}

    def unfinished(self) -> list[Run]:
        """Runs without an end: their process was killed, or still runs them."""
        return [run for run in self.runs if run.ended is None]

    def accepted(self) -> set[Run]:
        """Runs whose end a store would have taken that refuses a fence below the highest that it has seen under a key.

        It has seen that of each run at its start.
        """
        starts = [(run.lines[0], run) for run in self.runs]
        ends = [(run.lines[1], run) for run in self.runs if run.ended is not None]
        highest: dict[str, int] = defaultdict(int)
        found = set()
        for line, run in sorted([*starts, *ends], key=lambda event: event[0]):
            if run.fence < highest[run.key]:
                continue
            highest[run.key] = run.fence
            if line == run.lines[1]:
                found.add(run)
        return found

    def overlaps(self) -> list[tuple[Run, Run]]:
        """Pairs of runs of one key that were in progress at the same time.

        A run without an end counts from its start to its start only: when its process died is not in the ledger.
        """
        by_key: dict[str, list[Run]] = defaultdict(list)
        for run in self.runs:
            by_key[run.key].append(run)
        found = []
        for runs in by_key.values():
            runs.sort(key=lambda run: run.started)
            for index, run in enumerate(runs):
                end = run.ended or run.started
                found += [(run, later) for later in runs[index + 1 :] if later.started < end]
        return found
