"""The proof: what the ledger, the server and the process table say, against what was planned."""
from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from fastq.demo.ledger import ran
from fastq.demo.run import Run
from fastq.demo.stage import Stage

EARLY_US = -20_000  # what a delayed job may seem to be early by: its worker's clock is not quite the server's


@dataclass(frozen=True)
class Check:
    """One thing that has to be so, and how it was found to be."""

    about: str
    finding: str
    holds: bool


def check_jobs(run: Run) -> Iterator[Check]:
    """What ran, and how often, by the ledger; and what was enqueued, by what the producer was told."""
    plan, ledger, enqueued = run.plan, run.ledger, run.enqueued
    yield _each_once("plain", plan.plain, enqueued["plain"], ledger.plain)
    yield _each_once("unique", plan.unique, enqueued["unique"], ledger.unique)
    calls = enqueued["unique"] + run.refused
    yield Check("", f"{calls:,} calls, {run.refused:,} duplicates refused", run.refused == plan.unique)
    yield _each_once("delayed", plan.delayed, enqueued["delayed"], ledger.delayed)
    early = sum(late < EARLY_US for late in ledger.late)
    yield Check("", f"{early:,} ran before their time" if early else "none before its time", not early)
    yield _each_once("single", run.singles, enqueued["single"], ledger.single[: run.singles])
    yield _as_often_as_it_should(run)


def check_queues(run: Run) -> Iterator[Check]:
    """What is left in Redis, now that the workers have ended. Raises BrokerError."""
    dead = sum(queue.dead for queue in run.contents)
    yield Check("dead", f"{dead:,} kept in Redis, those whose every attempt failed", dead == run.plan.dead)
    locks = sum(b":unique:" in key for key in run.stage.all_keys())
    yield Check("locks", f"{locks:,} left in Redis" if locks else "none is left in Redis", not locks)
    entries, pending, scheduled = (
        sum(getattr(queue, what) for queue in run.contents) for what in ("entries", "pending", "scheduled")
    )
    finding = f"{entries:,} entries, {pending:,} pending, {scheduled:,} scheduled"
    yield Check("queues", finding, bool(run.contents) and not entries + pending + scheduled)


def check_processes(run: Run) -> Check:
    """Whether the workers have ended as they should, and left nothing running."""
    left = [pid for pid in run.fleet.started if _group_lives(pid)]
    died = run.fleet.deaths
    trouble = [f"{died} died on the way"] * bool(died) + [f"still running: {left}"] * bool(left)
    finding = ", ".join(trouble) or f"{run.processes} workers have ended, nothing is left running"
    return Check("processes", finding, not trouble)


def check_stage(stage: Stage) -> Check:
    """Whether the stage is as if nothing had been."""
    cleared = stage.is_cleared()
    if stage.server is None:
        return Check("server", "its keys are removed" if cleared else "not all keys are removed", cleared)
    return Check("server", "ended, its folder is removed" if cleared else "still there", cleared)


def _each_once(about: str, planned: int, enqueued: int, runs: memoryview[int]) -> Check:
    once = bytes(runs).count(1)
    finding = f"{enqueued:,} enqueued, {ran(runs):,} ran"
    if once == len(runs):
        finding += ", each of them once"
    else:
        finding += f", {bytes(runs).count(0):,} never, {len(runs) - once - bytes(runs).count(0):,} more than once"
    return Check(about, finding, enqueued == planned and once == planned)


def _as_often_as_it_should(run: Run) -> Check:
    plan, runs = run.plan, run.ledger.failing
    off = sum(runs[number] != plan.attempts(number) for number in range(plan.failing))
    finding = f"{run.enqueued['failing']:,} enqueued, {sum(runs):,} attempts"
    finding += f", {off:,} jobs ran more or less often than they should" if off else ", as many as there should be"
    return Check("failing", finding, run.enqueued["failing"] == plan.failing and not off)


def _group_lives(pid: int) -> bool:
    """Whether any process of a worker's group is there: the worker itself, or what it has started."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS says so of one that has ended and is not yet waited for
        return True
    return True
