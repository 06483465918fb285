"""What must be so at the end, whatever happened meanwhile; and how long it took until a dead worker's jobs ran again."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from tests.soak.chaos import Harm
from tests.soak.mix import Calls
from tests.soak.pulse import Pulse
from tests.support.ledger import Reading, Run

# Policies whose locks outlive every run of their jobs.
UNTIL_DONE, RENEWED = "done-", "-renew"
WAKING = 0.1e9  # ns: the job that a worker was about to begin when it was stopped begins when it wakes up
LATEST_WINS = ("-replace", "-rerun")


@dataclass
class Verdict:
    """The numbers of a soak. All of the first group must be 0, or empty."""

    lost: set[str] = field(default_factory=set)
    unexpected: set[str] = field(default_factory=set)
    repeated: set[str] = field(default_factory=set)  # without a worker that died, or stopped for about a lease
    overlapping: set[str] = field(default_factory=set)  # likewise, of jobs with one lock
    stale_writes: set[str] = field(default_factory=set)  # of the others that overlap: taken by a store that looks at the fence
    dead: int = 0
    late_settles: int = 0
    left: dict[str, object] = field(default_factory=dict)

    repeats_explained: int = 0
    overlaps_explained: int = 0
    runs: int = 0
    recoveries: dict[str, list[float]] = field(default_factory=lambda: {"once": [], "again": []})  # seconds
    silences: list[float] = field(default_factory=list)  # seconds
    stories: list[str] = field(default_factory=list)  # of what should not have run again

    @property
    def good(self) -> bool:
        runs = (self.lost, self.unexpected, self.repeated, self.overlapping, self.stale_writes)
        return not any((*runs, self.dead, self.late_settles, self.left))

    def lines(self) -> Iterator[str]:
        for name in ("lost", "unexpected", "repeated", "overlapping", "stale_writes"):
            found: set[str] = getattr(self, name)
            yield f"{name.replace('_', ' ')}: {len(found)}{''.join(f' {label}' for label in sorted(found)[:10])}"
        yield from self.stories
        yield f"dead: {self.dead}"
        yield f"late settles accepted: {self.late_settles}"
        yield f"locks, ids, entries, pending left: {self.left or 0}"
        yield f"runs: {self.runs}, of which {self.repeats_explained} repeat one that a worker was killed or stopped in"
        yield f"overlaps with a run of a worker that was stopped, or killed after it: {self.overlaps_explained}"
        for crashes, found in self.recoveries.items():
            if found:
                yield f"jobs whose worker was killed {crashes} ran again after {_spread(found)}"
        if self.silences:
            yield f"the server took no write for {_spread(self.silences)}"


def _spread(seconds: list[float]) -> str:
    times = sorted(seconds)
    p50, p95 = (times[min(len(times) - 1, int(len(times) * share))] for share in (0.5, 0.95))
    return f"p50 {p50:.2f} s, p95 {p95:.2f} s, max {times[-1]:.2f} s ({len(times)} times)"


@dataclass
class Evidence:
    """What there is to judge by. `succeeded` and `dead` are the server's counts, `lease` is in seconds."""

    calls: Calls
    harm: Harm
    pulse: Pulse
    reading: Reading
    succeeded: int
    dead: int
    left: dict[str, object]
    lease: float

    def was_harmed(self, run: Run) -> bool:
        """Whether its worker died, or stood still for long enough to look dead, in this run or before it could report it."""
        ended = run.ended if run.ended is not None else run.started + 10**12

        def in_time(moment: int) -> bool:
            return moment <= ended + int(2e9 * max(1.0, self.lease)) + self.pulse.silent_ns(ended, moment)

        killed = self.harm.killed.get(run.pid)
        if killed is not None and run.started <= killed and in_time(killed):
            return True
        return any(
            run.started <= until + WAKING and in_time(since) and until - since > 0.5e9 * self.lease
            for since, until in self.harm.stopped.get(run.pid, ())
        )


def judge(evidence: Evidence) -> Verdict:
    """Compare what was asked for with what the ledger says, and the server's count of successes with both."""
    calls, reading = evidence.calls, evidence.reading
    verdict = Verdict(dead=evidence.dead, left=evidence.left, runs=len(reading.runs))
    by_label: dict[str, list[Run]] = defaultdict(list)
    for run in reading.runs:
        by_label[run.key].append(run)
    done = {label for label, runs in by_label.items() if _succeeded(runs, calls.accepted.get(label))}
    verdict.lost = set(_missing(calls, done))
    verdict.unexpected = by_label.keys() - calls.accepted.keys() - calls.uncertain
    harmed = {run.key for run in reading.runs if evidence.was_harmed(run)}
    again = {label for label, runs in by_label.items() if len({run.attempt for run in runs}) < len(runs)}
    verdict.repeated = again - harmed
    verdict.repeats_explained = sum(
        len(by_label[label]) - len({run.attempt for run in by_label[label]}) for label in again & harmed
    )
    _judge_overlaps(verdict, evidence)
    # A settle that counts although its job was another's by then counts a success twice.
    verdict.late_settles = max(0, evidence.succeeded - len(done))
    for times, seconds in _recoveries(evidence.harm, by_label):
        verdict.recoveries["once" if times == 1 else "again"].append(seconds)
    verdict.silences = [(until - since) / 1e9 for since, until in evidence.pulse.silences]
    for label in sorted(verdict.repeated | verdict.overlapping)[:5]:
        verdict.stories += [label, *_story(by_label[label], evidence)]
    return verdict


def _judge_overlaps(verdict: Verdict, evidence: Evidence) -> None:
    locked = [
        replace(run, key=run.key.partition("/")[0])
        for run in evidence.reading.runs
        if run.key.startswith(UNTIL_DONE) or RENEWED in run.key.partition("/")[0]
    ]
    by_lock = Reading(locked)
    accepted = by_lock.accepted()
    for first, later in by_lock.overlaps():
        harmed = [run for run in (first, later) if evidence.was_harmed(run)]
        if not harmed:
            verdict.overlapping.add(first.key)
            continue
        verdict.overlaps_explained += 1
        stale, other = (first, later) if first in harmed else (later, first)
        if stale in accepted and stale.lines[1] > other.lines[0]:
            verdict.stale_writes.add(stale.key)


def _story(runs: list[Run], evidence: Evidence) -> Iterator[str]:
    """What happened around the runs of a job, by seconds since the first of them; and what else its workers did."""
    begun = min(run.started for run in runs)
    ended = max(run.ended or run.started for run in runs)
    told = [(at, what) for at, what in evidence.harm.moments if begun - 10e9 < at < ended + 3e9]
    for since, until in evidence.pulse.silences:
        if begun - 10e9 < since < ended + 3e9:
            told += [(since, "the server takes no write"), (until, "the server takes writes again")]
    for run in runs:
        told.append((run.started, f"attempt {run.attempt} begins in {run.pid}"))
        if run.ended is not None:
            told.append((run.ended, f"attempt {run.attempt} ends in {run.pid}"))
            following = [one.started for one in evidence.reading.runs if one.pid == run.pid and one.started > run.ended]
            told += [(at, f"{run.pid} begins another job") for at in following[:3]]
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


def _recoveries(harm: Harm, by_label: dict[str, list[Run]]) -> Iterator[tuple[int, float]]:
    """How often its workers had been killed with this job in hand, and seconds until it ran again."""
    for runs in by_label.values():
        runs.sort(key=lambda run: run.started)
        kills = 0
        for run, following in itertools.pairwise(runs):
            killed = harm.killed.get(run.pid)
            if run.ended is None and killed is not None and following.started > killed and following.attempt == run.attempt:
                kills += 1
                yield kills, (following.started - killed) / 1e9
