"""Children that die or stand still, and a supervisor that is killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.cli.conftest import Shop
from tests.fleet.conftest import FleetOf, lease
from tests.support.ledger import Run
from tests.support.process import wait_gone, wait_until

Start = Callable[..., FleetOf]


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("preload", [(), ("--preload",)])
def test_what_a_killed_child_ran_runs_elsewhere_within_a_second(
    shop: Shop, fleet: Start, kills: int, preload: tuple[str, ...]
) -> None:
    """C50: nobody waits for a lease to end, which takes ten minutes here."""
    lease(shop, 600)
    running = fleet(*preload)
    late, gaps = [], []
    for number in range(kills):
        key = f"hold {number}"
        shop.do(f"shop.hold.enqueue({number})")
        first = wait_until(lambda key=key: runs_of(shop, key))[0]

        killed = time.monotonic()
        os.kill(first.pid, signal.SIGKILL)
        second = wait_until(lambda key=key: runs_of(shop, key)[1:])[0]
        late.append(second.started / 1e9 - killed)
        running.wait_children(lambda now, gone=first.pid: len(now) == 2 and gone not in now)
        gaps.append(time.monotonic() - killed)
        running.served(2 + number + 1)
        shop.go()
        wait_until(lambda key=key: shop.ledger.read().ends[key])
        (shop.folder / "go").unlink()

    print(f"again after {sorted(late)}, a new child after {sorted(gaps)}")
    assert sorted(late)[int(0.95 * (kills - 1))] < 1
    assert max(gaps) < 2
    assert shop.ledger.read().starts == {f"hold {number}": 2 for number in range(kills)}


def runs_of(shop: Shop, key: str) -> list[Run]:
    return sorted((run for run in shop.ledger.read().runs if run.key == key), key=lambda run: run.started)


def test_no_job_runs_twice_when_the_supervisor_is_killed(shop: Shop, fleet: Start) -> None:
    lease(shop, 1)
    shop.do("for n in range(4): shop.hold.enqueue(n)")
    running = fleet()
    wait_until(lambda: len(shop.begun) == 4)
    children = running.children()

    running.program.kill()
    running.program.wait_line("the fleet is gone", count=2)
    other = fleet(processes=1)  # it would take over what nobody beats for
    time.sleep(3)  # three leases: a time in which nothing is to happen
    shop.go()
    for pid in children:
        wait_gone(pid)

    ran = shop.ledger.read()
    assert (ran.repeated(), len(ran.ends)) == ({}, 4)
    other.program.send(signal.SIGTERM)
    assert other.program.wait() == 0


def test_a_child_that_stands_still_is_killed_and_replaced(shop: Shop, fleet: Start) -> None:
    lease(shop, 1)
    shop.do("shop.hold.enqueue(1)")
    running = fleet("--watchdog", "3")
    stopped = wait_until(lambda: shop.ledger.read().runs)[0].pid

    os.kill(stopped, signal.SIGSTOP)
    wait_until(lambda: shop.ledger.read().starts["hold 1"] == 2)  # after its lease, though its supervisor lives
    running.program.wait_line(f"worker process {stopped} has made no step for 3 s: it is killed")

    running.wait_children(lambda now: len(now) == 2 and stopped not in now)
    shop.go()


def test_a_program_that_cannot_start_is_given_up_with_exit_code_1(shop: Shop) -> None:
    shop.write("broken", """
        import os, sys
        from fastq import FastQ
        if "--child" in sys.argv:
            os._exit(7)
        app = FastQ(namespace=os.environ["SHOP"])
    """)  # fmt: skip

    with shop.fastq("worker", "broken", "--processes", "2") as program:
        assert program.wait(60) == 1

    assert "ended with exit code 7" in program.stderr
    assert "the worker processes end as soon as they are started" in program.stderr


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="needs a process namespace")
def test_as_pid_1_it_waits_for_processes_that_others_left(shop: Shop) -> None:
    if subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, check=False).returncode:
        pytest.skip("may make no process namespace")
    shop.write("orphans", """
        import os, subprocess, sys, time
        from pathlib import Path
        from fastq import FastQ
        app = FastQ(namespace=os.environ["SHOP"])
        LEAVE = "import os, pathlib; os.fork() or pathlib.Path('orphan').write_text(str(os.getpid()))"

        @app.task
        def leave_and_look() -> None:
            subprocess.run([sys.executable, "-c", LEAVE])
            while not Path("orphan").exists() or not (pid := Path("orphan").read_text()):
                time.sleep(0.01)
            while Path("/proc", pid).exists():
                time.sleep(0.01)
            Path("gone").touch()
    """)  # fmt: skip
    shop.do("import orphans; orphans.leave_and_look.enqueue()")

    command = ("-m", "fastq.cli", "worker", "orphans", "--processes", "1")
    env = {**os.environ, **shop.env}
    unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-P", *command]
    with subprocess.Popen(unshare, env=env, cwd=shop.folder, stderr=subprocess.DEVNULL) as program:
        try:
            wait_until(lambda: (shop.folder / "gone").exists())
        finally:
            program.kill()
