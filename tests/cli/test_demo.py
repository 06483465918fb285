"""`fastq demo`: it proves its result, it would notice if that were wrong, and it leaves nothing behind."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis as redis_py

from tests.cli.conftest import Shop
from tests.support.process import descendants, script, wait_gone, wait_until

SMALL = ("demo", "--jobs", "1000", "--processes", "2")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files, of which none is to be left."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def keys(client: redis_py.Redis) -> list[bytes]:
    return list(client.scan_iter(match="fastq-demo-*", count=1000))


def workers() -> list[int]:
    return [pid for pid, command in descendants().items() if "fastq.demo.tasks" in command]


def test_it_proves_its_result_on_a_private_server_and_removes_it(shop: Shop, temporary: Path) -> None:
    with shop.fastq(*SMALL) as demo:
        assert demo.wait(60) == 0, demo.stdout + demo.stderr

    assert "1,000 enqueued, 1,000 ran, each of them once" in demo.stdout
    assert "200 calls, 100 duplicates refused" in demo.stdout
    assert "none is left in Redis" in demo.stdout
    assert "all as it should be" in demo.stdout
    assert "NOT SO" not in demo.stdout
    assert demo.stderr == ""
    assert list(temporary.iterdir()) == []


def test_a_given_server_keeps_nothing_of_it(shop: Shop, redis: redis_py.Redis, url: str, temporary: Path) -> None:
    with shop.fastq(*SMALL, "--url", url) as demo:
        wait_until(lambda: keys(redis))
        assert demo.wait(60) == 0, demo.stdout + demo.stderr

    assert "all as it should be" in demo.stdout
    assert keys(redis) == []
    assert list(temporary.iterdir()) == []


# What is done to the outcome of a run, what the proof then says, and how it is undone.
SPOILED = {
    "a job that ran twice": (
        "ledger.plain[7] += 1",
        "1,000 enqueued, 1,000 ran, 0 never, 1 more than once",
        "ledger.plain[7] -= 1",
    ),
    "a job that was lost": (
        "ledger.plain[7] -= 1",
        "1,000 enqueued, 999 ran, 1 never, 0 more than once",
        "ledger.plain[7] += 1",
    ),
    "a unique job that ran twice": (
        "ledger.unique[7] += 1",
        "100 enqueued, 100 ran, 0 never, 1 more than once",
        "ledger.unique[7] -= 1",
    ),
    "a duplicate that was let in": ("run.refused -= 1", "199 calls, 99 duplicates refused", "run.refused += 1"),
    "an attempt too many": ("ledger.failing[3] += 1", "1 jobs ran more or less often", "ledger.failing[3] -= 1"),
    "a job that came before its time": ("ledger.late[3] -= 10**7", "1 ran before their time", "ledger.late[3] += 10**7"),
    "a dead job that was not kept": (
        "found = run.contents; run.contents = [queue._replace(dead=0) for queue in found]",
        "0 kept in Redis",
        "run.contents = found",
    ),
    "a job that is still handed out": (
        "found = run.contents; run.contents = [found[0]._replace(pending=1)]",
        "0 entries, 1 pending, 0 scheduled",
        "run.contents = found",
    ),
    "a lock that is left": (
        "job = tasks.unique.using(queue='other').enqueue(1)",
        "1 left in Redis",
        "run.app.locks.release(tasks.unique.using(queue='other'), 1)",
    ),
    "a worker that died": ("run.fleet.deaths += 1", "1 died on the way", "run.fleet.deaths -= 1"),
    "a process that is left": ("run.fleet.started.append(os.getpgid(0))", "still running", "run.fleet.started.pop()"),
}


def test_it_would_notice_if_it_were_not_so(url: str) -> None:
    code = f"""
import asyncio, os
from fastq.demo.plan import Plan
from fastq.demo.stage import set_stage

with set_stage(Plan(1000), {url!r}) as stage:
    from fastq.demo import proof, tasks
    from fastq.demo.run import Run

    run = Run(stage, 1)
    asyncio.run(run.play())
    ledger = run.ledger
    for what, (spoil, _, undo) in {SPOILED!r}.items():
        exec(spoil)
        checks = [*proof.check_jobs(run), *proof.check_queues(run), proof.check_processes(run)]
        exec(undo)
        print(what, *(check.finding for check in checks if not check.holds), sep="|")
    checks = [*proof.check_jobs(run), *proof.check_queues(run), proof.check_processes(run)]
    print("nothing", *(check.finding for check in checks if not check.holds), sep="|")
    run.app.close()
"""
    with script(code) as demo:
        assert demo.wait(60) == 0, demo.stderr

    noticed = {what: findings for what, *findings in (line.split("|") for line in demo.stdout.splitlines())}
    assert noticed.pop("nothing") == []
    assert noticed.keys() == SPOILED.keys()
    for what, findings in noticed.items():
        assert any(SPOILED[what][1] in finding for finding in findings), (what, findings)


def test_a_proof_that_fails_is_exit_code_1(url: str) -> None:
    code = f"""
from fastq.demo import play
async def lose(run, view, played=play._play):
    await played(run, view)
    run.ledger.plain[7] = 0
play._play = lose
sys.exit(play.play(1000, 1, {url!r}))
"""
    with script(code) as demo:
        assert demo.wait(60) == 1, demo.stderr

    assert [line for line in demo.stdout.splitlines() if "NOT SO" in line] != []
    assert "all as it should be" not in demo.stdout


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_workers_and_removes_what_they_worked_on(
    shop: Shop, redis: redis_py.Redis, url: str, signum: int
) -> None:
    with shop.fastq("demo", "--jobs", "100000", "--url", url) as demo:
        demo.wait_line(r" [1-9][\d,]* of")
        begun = workers()
        demo.send(signum)
        assert demo.wait() == 130
        for pid in begun:
            wait_gone(pid)

    assert "interrupted" in demo.stdout
    assert len(begun) == 2
    assert keys(redis) == []


def test_the_workers_and_the_server_of_a_killed_demo_end(shop: Shop, temporary: Path) -> None:
    others = descendants().keys()
    with shop.fastq("demo", "--jobs", "100000") as demo:
        demo.wait_line(r" [1-9][\d,]* of")
        running = descendants().keys() - others
        demo.kill()
        for pid in running:
            wait_gone(pid)

    assert len(running) >= 5  # it, two workers, the server and its guard
    assert list(temporary.iterdir()) == []


def test_on_a_terminal_it_is_shown_live(shop: Shop, url: str) -> None:
    shown = "".join(on_a_terminal([sys.executable, "-P", "-m", "fastq.cli", *SMALL, "--url", url], shop))

    bars = re.findall(r"plain.*?([\d,]+) / 1,000", shown)
    assert "━" in shown
    assert len(bars) > 2
    assert bars[-1] == "1,000"
    assert "all as it should be" in shown


def on_a_terminal(command: list[str], shop: Shop) -> Iterator[str]:
    """What a program writes to its terminal, until it has ended with exit code 0."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}
    program = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=shop.folder)
    os.close(theirs)
    try:
        while select.select([ours], [], [], 60)[0]:
            try:
                yield os.read(ours, 65536).decode(errors="replace")
            except OSError:  # the other end is closed
                break
        assert program.wait(10) == 0
    finally:
        os.close(ours)
        program.kill()
        program.wait()
