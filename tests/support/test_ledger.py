"""The ledger's verdicts are right: the proofs that nothing is lost stand on them."""

import os
from pathlib import Path

from tests.support import process
from tests.support.ledger import Ledger

BODY = """
from tests.support.ledger import Ledger
for number in range(200):
    with Ledger.here().run(f"{sys.argv[1]}-{number}"):
        pass
"""


def test_lines_of_many_processes_never_mix(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")

    children = [process.script(BODY, name, env=ledger.environment) for name in "abcd"]

    for child in children:
        assert child.wait() == 0, child.stderr
    reading = ledger.read()
    assert reading.missing(f"{name}-{number}" for name in "abcd" for number in range(200)) == set()
    assert (len(reading.runs), reading.repeated(), reading.unfinished()) == (800, {}, [])
    assert {run.pid for run in reading.runs} == {child.pid for child in children}
    ledger.close()


def test_verdicts_tell_missing_repeated_unfinished_and_overlapping_runs(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    first = ledger.start("twice", 1)
    second = ledger.start("twice", 2)
    ledger.end(first)
    ledger.end(second)
    ledger.start("killed")
    with ledger.run("fine"):
        pass

    reading = ledger.read()

    assert reading.missing(["twice", "killed", "fine", "never"]) == {"killed", "never"}
    assert reading.repeated() == {"twice": 2}
    assert [run.key for run in reading.unfinished()] == ["killed"]
    assert [(a.attempt, b.attempt) for a, b in reading.overlaps()] == [(1, 2)]
    assert {run.pid for run in reading.runs} == {os.getpid()}
    ledger.close()


def test_a_store_that_looks_at_the_fence_takes_no_end_of_a_run_that_another_has_followed(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    stale = ledger.start("followed", 1, fence=5)
    with ledger.run("alone", fence=3):
        successor = ledger.start("followed", 1, fence=6)
    ledger.end(stale)
    ledger.end(successor)
    late = ledger.start("late", fence=7)
    with ledger.run("late", fence=8):
        pass
    ledger.end(late)

    assert {(run.key, run.fence) for run in ledger.read().accepted()} == {("alone", 3), ("followed", 6), ("late", 8)}
    ledger.close()
