"""What must be so at the end, whatever happened meanwhile; and how long it took until a dead worker's jobs ran again."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from tests.soak.chaos import Harm
from tests.soak.mix import Calls
from tests.support.ledger import Reading, Run

OVERLAP_FREE = "done-"  # policies whose locks outlive every run of their jobs
LATEST_WINS = ("-replace", "-rerun")


@dataclass
class Verdict:
    """The numbers of a soak. All but the last two groups must be 0, or empty."""

    lost: set[str] = field(default_factory=set)
    unexpected: set[str] = field(default_factory=set)
    repeated: set[str] = field(default_factory=set)  # without a worker that died, or stopped for about a lease
    overlapping: set[str] = field(default_factory=set)
    dead: int = 0
    late_settles: int = 0
    left: dict[str, object] = field(default_factory=dict)

    repeats_explained: int = 0
    runs: int = 0
    recoveries: list[float] = field(default_factory=list)  # seconds
    stories: list[str] = field(default_factory=list)  # of what should not have run again

    @property
    def good(self) -> bool:
        return not any((self.lost, self.unexpected, self.repeated, self.overlapping, self.dead, self.late_settles, self.left))

    def lines(self) -> Iterator[str]:
        for name in ("lost", "unexpected", "repeated", "overlapping"):
            found: set[str] = getattr(self, name)
            yield f"{name}: {len(found)}{''.join(f' {label}' for label in sorted(found)[:10])}"
        yield from self.stories
        yield f"dead: {self.dead}"
        yield f"late settles accepted: {self.late_settles}"
        yield f"locks, ids, entries, pending left: {self.left or 0}"
        yield f"runs: {self.runs}, of which {self.repeats_explained} repeat one that a worker was killed or stopped in"
        if self.recoveries:
            times = sorted(self.recoveries)
            p50, p95 = (times[min(len(times) - 1, int(len(times) * share))] for share in (0.5, 0.95))
            yield f"jobs of killed workers ran again after p50 {p50:.2f} s, p95 {p95:.2f} s, max {times[-1]:.2f} s ({len(times)})"


def judge(
    calls: Calls, harm: Harm, reading: Reading, succeeded: int, dead: int, left: dict[str, object], lease: float
) -> Verdict:
    """Compare what was asked for with what the ledger says, and the server's count of successes with both."""
    verdict = Verdict(dead=dead, left=left, runs=len(reading.runs))
    by_label: dict[str, list[Run]] = defaultdict(list)
    for run in reading.runs:
        by_label[run.key].append(run)
    done = {label for label, runs in by_label.items() if _succeeded(runs, calls.accepted.get(label))}
    verdict.lost = set(_missing(calls, done))
    verdict.unexpected = by_label.keys() - calls.accepted.keys() - calls.uncertain
    harmed = {run.key for run in reading.runs if _was_harmed(run, harm, lease)}
    again = {label for label, runs in by_label.items() if len({run.attempt for run in runs}) < len(runs)}
    verdict.repeated = again - harmed
    verdict.repeats_explained = sum(
        len(by_label[label]) - len({run.attempt for run in by_label[label]}) for label in again & harmed
    )
    verdict.overlapping = set(_overlaps(reading.runs, harmed))
    # A settle that counts although its job was another's by then counts a success twice.
    verdict.late_settles = max(0, succeeded - len(done))
    verdict.recoveries = list(_recoveries(harm, by_label))
    for label in sorted(verdict.repeated | verdict.overlapping)[:5]:
        verdict.stories += [label, *_story(by_label[label], harm)]
    return verdict


def _story(runs: list[Run], harm: Harm) -> Iterator[str]:
    """What happened around the runs of a job, by seconds since the first of them."""
    begun = min(run.started for run in runs)
    ended = max(run.ended or run.started for run in runs)
    told = [(at, what) for at, what in harm.moments if begun - 10e9 < at < ended + 3e9]
    for run in runs:
        told.append((run.started, f"attempt {run.attempt} begins in {run.pid}"))
        if run.ended is not None:
            told.append((run.ended, f"attempt {run.attempt} ends in {run.pid}"))
    for at, what in sorted(told):
        yield f"  {(at - begun) / 1e9:8.2f} s  {what}"


def _succeeded(runs: Iterable[Run], failures: int | None) -> bool:
    """Whether a run came to its end in an attempt that was not told to fail. Of an uncertain call that is not known."""
    return any(run.ended is not None and run.attempt > (failures or 0) for run in runs)


def _missing(calls: Calls, done: set[str]) -> Iterator[str]:
    for key, labels in calls.order.items():
        certain = [label for label in labels if label in calls.accepted]
        if not any(part in key for part in LATEST_WINS):
            yield from (label for label in certain if label not in done)
        elif certain:
            # Calls that replace each other: the last one has run, or one whose reply was lost and that came after it.
            last = labels[labels.index(certain[-1]) :]
            if not done.intersection(last):
                yield certain[-1]


def _was_harmed(run: Run, harm: Harm, lease: float) -> bool:
    """Whether its worker died, or stood still for long enough to look dead, in this run or before it could report it."""
    killed = harm.killed.get(run.pid)
    report_ns = int(2e9 * max(1.0, lease))
    ended = run.ended if run.ended is not None else run.started + 10**12
    if killed is not None and run.started <= killed <= ended + report_ns:
        return True
    return any(
        run.started <= until and since <= ended + report_ns and until - since > 0.5e9 * lease
        for since, until in harm.stopped.get(run.pid, ())
    )


def _overlaps(runs: Iterable[Run], harmed: set[str]) -> Iterator[str]:
    locked = [
        replace(run, key=run.key.partition("/")[0]) for run in runs if run.key.startswith(OVERLAP_FREE) and run.key not in harmed
    ]
    for first, _ in Reading(locked).overlaps():
        yield first.key


def _recoveries(harm: Harm, by_label: dict[str, list[Run]]) -> Iterator[float]:
    for runs in by_label.values():
        runs.sort(key=lambda run: run.started)
        for run, following in itertools.pairwise(runs):
            killed = harm.killed.get(run.pid)
            if run.ended is None and killed is not None and following.started > killed and following.attempt == run.attempt:
                yield (following.started - killed) / 1e9
