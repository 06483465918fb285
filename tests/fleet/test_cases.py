"""Field cases of stopping and of fairness, as they look in a fleet."""

import signal
import time
from collections.abc import Callable

import pytest

from tests.cli.conftest import Shop
from tests.fleet.conftest import FleetOf, lease
from tests.support.process import wait_gone, wait_until

Start = Callable[..., FleetOf]

MORE = """
    @app.task
    async def nap(key: str, seconds: float) -> None:
        with Ledger.here().run(key):
            await asyncio.sleep(seconds)

    @app.task
    def steps(key: str) -> None:
        with Ledger.here().run(key):
            while not Path("go").exists():
                time.sleep(0.01)
"""


@pytest.fixture(autouse=True)
def more_tasks(shop: Shop) -> None:
    """Tasks that nap, and that take many steps in a thread."""
    added = "\n".join(line.removeprefix("    ") for line in MORE.splitlines())
    (shop.folder / "shop.py").write_text((shop.folder / "shop.py").read_text() + added + "\n")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_c48_what_a_fleet_had_fetched_and_not_started_is_free_at_once(shop: Shop, fleet: Start, signum: int) -> None:
    keys = {f"nap {number}" for number in range(100)}
    shop.do("shop.nap.enqueue_many((f'nap {n}', 0.1) for n in range(100))")
    lease(shop, 600)  # nothing is free by itself
    for _ in range(3):
        begun = len(shop.begun)
        running = fleet("--concurrency", "2")
        wait_until(lambda begun=begun: len(shop.begun) > begun)
        running.program.send(signum)
        assert running.program.wait() == 0, running.program.stderr
    fleet("--concurrency", "20")

    wait_until(lambda: shop.ledger.read().missing(keys) == set())

    assert shop.ledger.read().repeated() == {}


def test_c51_a_sync_job_ends_within_the_grace_time_of_its_fleet(shop: Shop, fleet: Start) -> None:
    shop.do("shop.steps.enqueue('a'); shop.steps.enqueue('b')")
    running = fleet("--grace", "30")
    wait_until(lambda: {"a", "b"} <= set(shop.begun))

    running.program.send(signal.SIGTERM)
    running.program.wait_line("fetches no more", count=2)
    shop.do("shop.nap.enqueue('later', 0)")
    shop.go()

    assert running.program.wait() == 0, running.program.stderr
    ran = shop.ledger.read()
    assert (ran.ends["a"], ran.ends["b"], ran.repeated()) == (1, 1, {})
    assert "later" not in ran.starts


def test_c51_a_sync_job_past_the_grace_time_of_its_fleet_is_anothers(shop: Shop, fleet: Start) -> None:
    shop.do("shop.steps.enqueue('a')")
    running = fleet("--grace", "0.5")
    wait_until(lambda: shop.begun == ["a"])
    children = running.children()

    running.program.send(signal.SIGTERM)

    assert running.program.wait() == 0, running.program.stderr  # though the thread goes on in its steps
    for pid in children:
        wait_gone(pid)
    shop.go()
    fleet()
    wait_until(lambda: shop.ledger.read().ends["a"] == 1)
    assert shop.ledger.read().starts["a"] == 2


def test_c59_a_flooded_queue_holds_up_no_other_of_its_weight(shop: Shop, fleet: Start) -> None:
    shop.do("shop.nap.using(queue='flooded').enqueue_many((f'flood {n}', 0.02) for n in range(3000))")
    running = fleet("--queues", "flooded=1,mail=1,other=1", "--concurrency", "5")
    wait_until(lambda: len(shop.begun) > 50)

    begun = time.monotonic()
    shop.do("shop.mail.enqueue_many((n,) for n in range(20)); shop.nap.using(queue='other').enqueue('other', 0)")
    wait_until(lambda: shop.ledger.read().missing({"other", *(f"mail {n}" for n in range(20))}) == set())

    assert time.monotonic() - begun < 5
    assert len(shop.ledger.read().ends) < 3000  # the flood goes on
    running.program.send(signal.SIGTERM)
    assert running.program.wait() == 0


def test_c60_jobs_behind_a_long_one_go_to_the_idle_child(shop: Shop, fleet: Start) -> None:
    short = [f"short {number}" for number in range(9)]
    items = "[shop.hold.prepare(1), *(shop.nap.prepare(f'short {n}', 0.1) for n in range(9))]"
    shop.do(f"shop.app.enqueue_many({items})")  # one frame
    fleet("--concurrency", "1")
    wait_until(lambda: "hold 1" in shop.begun)

    wait_until(lambda: shop.ledger.read().missing(short) == set())

    ran = shop.ledger.read()
    assert ran.ends["hold 1"] == 0
    assert len({run.pid for run in ran.runs}) == 2
    shop.go()
    wait_until(lambda: shop.ledger.read().ends["hold 1"] == 1)
    assert shop.ledger.read().repeated() == {}
