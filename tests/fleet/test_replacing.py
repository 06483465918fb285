"""Children that are well and are replaced all the same: no dip in service, nothing lost, nothing run twice."""

import signal
from collections.abc import Callable

import pytest

from tests.cli.conftest import Shop
from tests.fleet.conftest import FleetOf
from tests.support.process import wait_gone, wait_until

Start = Callable[..., FleetOf]

NAP = """
    @app.task
    async def nap(number: int, seconds: float) -> None:
        with Ledger.here().run(f"nap {number}"):
            await asyncio.sleep(seconds)
"""


@pytest.fixture(autouse=True)
def naps(shop: Shop) -> None:
    (shop.folder / "shop.py").write_text((shop.folder / "shop.py").read_text() + "\n".join(
        line.removeprefix("    ") for line in NAP.splitlines()) + "\n")  # fmt: skip


def enqueue_naps(shop: Shop, jobs: int, seconds: float) -> set[str]:
    shop.do(f"shop.nap.enqueue_many((n, {seconds}) for n in range({jobs}))")
    return {f"nap {n}" for n in range(jobs)}


@pytest.mark.parametrize("preload", [(), ("--preload",)])
def test_sighup_replaces_all_children_by_such_that_run_new_code(shop: Shop, fleet: Start, preload: tuple[str, ...]) -> None:
    keys = enqueue_naps(shop, 600, 0.05)
    running = fleet("--concurrency", "5", *preload)
    before = running.children()

    source = (shop.folder / "shop.py").read_text()
    (shop.folder / "shop.py").write_text(source.replace('f"plain {number}"', 'f"new {number}"'))
    running.program.send(signal.SIGHUP)
    running.wait_children(lambda now: len(now) == 2 and not now & before)
    shop.do("shop.plain.enqueue(1)")
    wait_until(lambda: shop.ledger.read().missing(keys | {"new 1"}) == set())

    ran = shop.ledger.read()
    assert ran.repeated() == {}
    assert {run.pid for run in ran.runs} > before
    running.program.send(signal.SIGTERM)
    assert running.program.wait() == 0


def test_new_code_that_does_not_start_leaves_the_old_one_at_work(shop: Shop, fleet: Start) -> None:
    running = fleet()
    before = running.children()

    (shop.folder / "shop.py").write_text("raise RuntimeError('broken')")
    running.program.send(signal.SIGHUP)
    running.program.wait_line(r"does not serve: \d+ goes on in its place", timeout=30)

    assert before <= running.children()
    running.program.send(signal.SIGTERM)
    assert running.program.wait() == 0


def test_children_are_recycled_after_their_jobs_and_each_job_runs_once(shop: Shop, fleet: Start) -> None:
    """C49, in a fleet."""
    keys = enqueue_naps(shop, 1500, 0.05)
    running = fleet("--concurrency", "5", "--max-jobs", "30")
    before = running.children()

    running.wait_children(lambda now: len(now) == 2 and not now & before)
    wait_until(lambda: shop.ledger.read().missing(keys) == set())

    ran = shop.ledger.read()
    assert ran.repeated() == {}
    assert {run.pid for run in ran.runs} > before  # the first ones and others
    running.program.wait_line(r"worker process \d+ has run \d+ jobs: another one takes its place")
    running.program.send(signal.SIGTERM)
    assert running.program.wait() == 0


@pytest.mark.parametrize(("option", "why"), [("--max-age=1", r"is [1-9]\d* s old"), ("--max-rss=1", r"uses \d+ MiB of memory")])
def test_children_are_recycled_by_age_and_by_memory(fleet: Start, option: str, why: str) -> None:
    running = fleet(option, processes=1)

    told = running.program.wait_line(rf"worker process (\d+) {why}: another one takes its place")

    wait_gone(int(told[1]))
    running.program.send(signal.SIGTERM)
    assert running.program.wait() == 0


def test_a_replaced_child_may_finish_a_job_that_takes_longer_than_the_grace_time(shop: Shop, fleet: Start) -> None:
    shop.do("shop.hold.enqueue(1)")
    running = fleet("--grace", "0.1", processes=1)
    wait_until(lambda: shop.begun)
    (first,) = running.children()

    running.program.send(signal.SIGHUP)
    running.program.wait_line("fetches no more")
    enqueued = enqueue_naps(shop, 5, 0.0)
    wait_until(lambda: shop.ledger.read().missing(enqueued) == set())
    assert first in running.children()
    shop.go()
    wait_gone(first)

    ran = shop.ledger.read()
    assert (ran.ends["hold 1"], ran.repeated()) == (1, {})


def test_a_changed_file_replaces_the_child(shop: Shop, fleet: Start) -> None:
    pytest.importorskip("watchfiles")
    running = fleet("--reload", processes=1)
    (first,) = running.children()

    source = (shop.folder / "shop.py").read_text()
    (shop.folder / "shop.py").write_text(source.replace('f"plain {number}"', 'f"new {number}"'))
    wait_gone(first)
    shop.do("shop.plain.enqueue(1)")

    wait_until(lambda: shop.begun == ["new 1"])
