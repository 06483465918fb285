"""`fastq worker`: which jobs it runs, and how it ends."""

import json
import signal
import time

import pytest
import redis as redis_py

from fastq.codec import Frame
from fastq.keys import QueueKeys
from tests.cli.conftest import Shop
from tests.support.process import wait_until
from tests.support.queues import waiting

SERVES = r"worker \S+ serves"


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_burst_runs_all_that_waits_in_the_queues_of_the_app_and_ends(
    shop: Shop, redis: redis_py.Redis, processes: str
) -> None:
    shop.do("shop.plain.enqueue_many((n,) for n in range(500)); shop.mail.enqueue_many((n,) for n in range(500))")

    with shop.fastq("worker", "shop", "--processes", processes, "--burst") as worker:
        assert worker.wait() == 0, worker.stderr

    ran = shop.ledger.read()
    expected = {f"{task} {n}" for task in ("plain", "mail") for n in range(500)}
    assert (ran.ends.keys(), ran.repeated()) == (expected, {})
    assert waiting(redis, shop.namespace) == waiting(redis, shop.namespace, "mail") == []


def test_listed_queues_are_served_in_strict_order(shop: Shop) -> None:
    shop.do("shop.plain.enqueue_many((n,) for n in range(50)); shop.mail.enqueue_many((n,) for n in range(50))")

    one_at_a_time = ("--processes", "1", "--concurrency", "1")
    with shop.fastq("worker", "shop:app", *one_at_a_time, "--queues", "mail, default", "--burst") as worker:
        assert worker.wait() == 0, worker.stderr

    assert shop.begun == [f"mail {n}" for n in range(50)] + [f"plain {n}" for n in range(50)]


def test_a_queue_that_is_not_listed_is_left_alone(shop: Shop, redis: redis_py.Redis) -> None:
    shop.do("shop.plain.enqueue(1); shop.mail.enqueue(1)")

    with shop.fastq("worker", "shop", "--processes", "1", "--queues", "mail", "--burst") as worker:
        assert worker.wait() == 0, worker.stderr

    assert shop.begun == ["mail 1"]
    assert len(waiting(redis, shop.namespace)) == 1


@pytest.mark.parametrize("processes", ["1", "2"])
def test_tasks_of_further_modules_are_known(shop: Shop, processes: str) -> None:
    more = "from shop import Ledger, app\n@app.task(name='more')\nasync def more() -> None:\n    Ledger.here().start('more')"
    shop.write("further", more)
    shop.do("shop.app.enqueue('more')")

    with shop.fastq("worker", "shop", "--processes", processes, "--import", "further", "--burst") as worker:
        assert worker.wait() == 0, worker.stderr

    assert shop.begun == ["more"]


@pytest.mark.parametrize("processes", ["1", "2"])
def test_what_lies_in_the_current_folder_does_not_take_the_place_of_fastq(shop: Shop, processes: str) -> None:
    for package in ("fastq", "fastq_ext"):
        (shop.folder / package).mkdir()
        (shop.folder / package / "__init__.py").write_text("raise ImportError('the wrong one')")
    shop.write("orders", "from fastq import FastQ\napp = FastQ(namespace='no-such-orders')")

    with shop.fastq("worker", "orders", "--processes", processes, "--burst") as worker:
        assert worker.wait() == 0, worker.stderr


def test_logs_for_machines_are_an_object_a_line(shop: Shop) -> None:
    shop.do("shop.app.using(delay=0).enqueue('shop.unknown')")

    with shop.fastq("worker", "shop", "--processes", "2", "--log-format", "json") as worker:
        worker.wait_line("is not known here")
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0

    events = [json.loads(line) for line in worker.stderr.splitlines()]
    assert {"time", "level", "logger", "pid", "message"} <= set.intersection(*(set(event) for event in events))
    assert {"info", "warning"} <= {event["level"] for event in events}


def test_the_log_level_is_the_lowest_that_is_logged(shop: Shop) -> None:
    with shop.fastq("worker", "shop", "--processes", "2", "--log-level", "error", "--burst") as worker:
        assert worker.wait() == 0

    assert worker.stderr == ""


@pytest.mark.parametrize(("processes", "signum"), [("1", signal.SIGTERM), ("2", signal.SIGTERM), ("2", signal.SIGINT)])
def test_a_signal_lets_running_jobs_end_and_gives_back_the_others(
    shop: Shop, redis: redis_py.Redis, processes: str, signum: int
) -> None:
    shop.do("for n in range(4): shop.hold.enqueue(n)")
    one_at_a_time = ("--processes", processes, "--concurrency", "1")

    with shop.fastq("worker", "shop", *one_at_a_time) as worker:
        wait_until(lambda: len(shop.begun) == int(processes))
        worker.send(signum)
        worker.wait_line("fetches no more", count=int(processes))
        wait_until(lambda: len(held(redis, shop)) == int(processes))  # the others are back
        shop.go()
        assert worker.wait() == 0, worker.stderr

    ran = shop.ledger.read()
    assert (len(ran.ends), ran.unfinished()) == (int(processes), [])
    assert free(redis, shop) == 4 - int(processes)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_second_signal_ends_it_at_once_and_gives_back_what_ran(
    shop: Shop, redis: redis_py.Redis, processes: str
) -> None:
    shop.do("shop.hold.enqueue(1); shop.sleep_in_thread.enqueue(2)")

    with shop.fastq("worker", "shop", "--processes", processes) as worker:
        worker.wait_line("serves", count=int(processes))
        wait_until(lambda: len(shop.begun) == 2)
        worker.send(signal.SIGTERM)
        worker.wait_line("fetches no more", count=int(processes))
        worker.send(signal.SIGTERM)
        begun = time.monotonic()
        assert worker.wait() == 0, worker.stderr

    assert time.monotonic() - begun < 10  # a thread that sleeps for a minute is not waited for
    assert (free(redis, shop), held(redis, shop)) == (2, set())


def test_what_still_runs_after_the_grace_time_is_given_back(shop: Shop, redis: redis_py.Redis) -> None:
    shop.do("shop.hold.enqueue(1); shop.sleep_in_thread.enqueue(2)")

    with shop.fastq("worker", "shop", "--processes", "2", "--grace", "0.5") as worker:
        wait_until(lambda: len(shop.begun) == 2)
        worker.send(signal.SIGTERM)
        begun = time.monotonic()
        assert worker.wait() == 0, worker.stderr

    assert time.monotonic() - begun < 10
    assert (free(redis, shop), held(redis, shop)) == (2, set())


def held(client: redis_py.Redis, shop: Shop) -> set[bytes]:
    """The entries that a worker holds."""
    keys = QueueKeys(shop.namespace, "default")
    found = [client.xpending_range(key, "fastq", "-", "+", 100) for key in (keys.stream, keys.front)]
    return {entry["message_id"] for entries in found for entry in entries}


def free(client: redis_py.Redis, shop: Shop) -> int:
    """The jobs that any worker can have."""
    keys = QueueKeys(shop.namespace, "default")
    entries = [*client.xrange(keys.stream), *client.xrange(keys.front)]
    taken = held(client, shop)
    return sum(len(Frame(fields[b"f"])) for entry_id, fields in entries if entry_id not in taken and b"f" in fields)
