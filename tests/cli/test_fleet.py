"""A fleet of worker processes: children that die, and a fleet that does."""

import os
import signal

import pytest
import redis as redis_py

from fastq.keys import QueueKeys
from tests.cli.conftest import Shop
from tests.support.process import Child, descendants, look_up, wait_gone, wait_until


def children_of(fleet: Child) -> list[int]:
    """The worker processes of a fleet."""
    found = [pid for pid, command in descendants().items() if "--child" in command]
    return [pid for pid in found if (process := look_up(pid)) is not None and process.parent == fleet.pid]


def hearts() -> list[int]:
    return [pid for pid, command in descendants().items() if "fastq.worker.heart" in command]


def members(client: redis_py.Redis, shop: Shop) -> list[bytes]:
    return client.zrange(QueueKeys(shop.namespace, "default").consumers, 0, -1)


@pytest.fixture
def slow_lease(shop: Shop) -> None:
    """Nobody is taken for dead because of its silence while a test lasts."""
    source = (shop.folder / "shop.py").read_text()
    (shop.folder / "shop.py").write_text(source.replace('os.environ["SHOP"])', 'os.environ["SHOP"], lease=600)'))


@pytest.mark.usefixtures("slow_lease")
def test_what_a_killed_child_held_runs_elsewhere_at_once_and_a_new_child_takes_its_place(
    shop: Shop, redis: redis_py.Redis
) -> None:
    shop.do("shop.hold.enqueue(1)")

    with shop.fastq("worker", "shop", "--processes", "2") as fleet:
        first = wait_until(lambda: shop.ledger.read().runs)[0]
        others = {pid for pid in children_of(fleet) if pid != first.pid}
        os.kill(first.pid, signal.SIGKILL)
        second = wait_until(lambda: shop.ledger.read().runs[1:])[0]
        wait_until(lambda: len(children_of(fleet)) == 2)
        shop.go()
        wait_until(lambda: shop.ledger.read().ends)
        wait_until(lambda: len(members(redis, shop)) == 2)
        after = set(children_of(fleet))
        fleet.send(signal.SIGTERM)
        assert fleet.wait() == 0, fleet.stderr

    assert (first.key, second.key) == ("hold 1", "hold 1")
    assert second.pid != first.pid
    assert others < after
    assert first.pid not in after
    assert "was ended by SIGKILL" in fleet.stderr
    assert members(redis, shop) == []


@pytest.mark.usefixtures("slow_lease")
@pytest.mark.parametrize("code", [0, 3])
def test_a_child_that_a_job_ends_is_replaced_whatever_its_exit_code(shop: Shop, code: int) -> None:
    shop.do(f"shop.end_process.enqueue({code})")

    with shop.fastq("worker", "shop", "--processes", "2", "--burst") as fleet:
        fleet.wait_line(rf"ended with exit code {code}; another one starts")
        shop.go()
        assert fleet.wait() == 0, fleet.stderr

    assert f"survived {code}" in shop.begun


def test_the_children_of_a_killed_fleet_let_their_jobs_end_and_leave(shop: Shop, redis: redis_py.Redis) -> None:
    shop.do("shop.hold.enqueue(1)")

    with shop.fastq("worker", "shop", "--processes", "2") as fleet:
        wait_until(lambda: shop.begun)
        fleet.wait_line(r"worker \S+ serves", count=2)
        left_alone = [*children_of(fleet), *hearts()]
        assert len(left_alone) == 2  # their fleet beats for them
        fleet.kill()
        fleet.wait_line("the fleet is gone", count=2)
        shop.go()
        for pid in left_alone:
            wait_gone(pid)

    ran = shop.ledger.read()
    assert (list(ran.ends.elements()), ran.unfinished()) == (["hold 1"], [])
    assert members(redis, shop) == []


def test_the_terminals_signals_reach_the_fleet_only(shop: Shop) -> None:
    with shop.fastq("worker", "shop", "--processes", "2") as fleet:
        fleet.wait_line(r"worker \S+ serves", count=2)
        groups = {os.getpgid(pid) for pid in children_of(fleet)}
        ours = os.getpgid(fleet.pid)
        fleet.send(signal.SIGINT)
        assert fleet.wait() == 0

    assert len(groups) == 2
    assert ours not in groups


def test_a_child_that_does_not_end_is_killed(shop: Shop) -> None:
    with shop.fastq("worker", "shop", "--processes", "2") as fleet:
        fleet.wait_line(r"worker \S+ serves", count=2)
        stopped, other = children_of(fleet)
        os.kill(stopped, signal.SIGSTOP)
        fleet.send(signal.SIGTERM)
        wait_gone(other)
        fleet.send(signal.SIGTERM)
        assert fleet.wait() == 0

    assert f"worker process {stopped} does not end: it is killed" in fleet.stderr
