"""Field cases C12 to C22: workers die, and their jobs go on elsewhere; workers live, and nobody takes their jobs away."""

import signal
import time
from collections.abc import Callable

import pytest

from fastq.broker import requests
from fastq.codec import Template, new_uid
from tests.cases.site import SLOW, Site
from tests.support.process import wait_until

TAKEN_OVER = 4.0  # seconds that a job of a killed worker may take to start elsewhere, with a lease of 1 s


@pytest.mark.cases
def test_c12_whichever_worker_dies_the_others_do_all_of_its_duties(site: Site, full: bool) -> None:
    """Nobody has a role of its own: every worker promotes, judges and brings back."""
    site.pair()
    rounds = 3 if full else 1
    for number in range(rounds):
        held = f"held-{number}"
        gate = site.gate()
        site.enqueue(site.tasks.work, held, gate=str(gate))
        site.wait_started(held)
        victim = site.worker_of(held)
        third = site.start_worker()
        site.enqueue(site.tasks.work.using(delay=1), f"due-{number}")
        victim.kill()
        site.ready(third)
        site.wait_started(held, 2, timeout=TAKEN_OVER)
        gate.open()

        site.wait_ended(held, f"due-{number}")
    site.assert_laws(may_repeat={f"held-{number}" for number in range(rounds)})


def test_c13_nothing_that_a_dead_worker_has_left_blocks_the_recovery(site: Site) -> None:
    """A dead worker that was half taken out, a wake entry that nobody took, and a clock that was ahead."""
    for call in (
        requests.join(site.keys, b"gone-1"),
        requests.enqueue(site.keys, [requests.single(message(site, "held", gate=""))], 1, laned=False),
        requests.fetch(site.keys, b"gone-1", entries=10, suspects=True),
    ):
        site.app.broker.call(call)
    site.accepted.add("held")
    client, hour = site.client, 3600_000
    now = int(time.time() * 1000)
    client.zadd(site.keys.consumers, {b"gone-1": -1})
    client.set(site.keys.watch, now + hour)
    client.set(site.keys.wake, client.xadd(site.keys.stream, {"w": ""}))

    site.worker()

    site.wait_ended("held", timeout=SLOW * 2)
    site.assert_laws(may_repeat={"held"})


@pytest.mark.cases
def test_c13_a_worker_that_is_stopped_in_a_tick_and_then_killed_blocks_nobody(site: Site) -> None:
    first, second = site.pair()
    gate = site.gate()
    labels = site.enqueue_many(site.tasks.work, [f"job-{n}" for n in range(20)], gate=str(gate))
    wait_until(lambda: len(site.ledger.read().starts) == 20)
    first.send(signal.SIGSTOP)
    gate.open()
    time.sleep(0.3)  # within its lease: whatever it was doing, it does not do it now

    first.kill()

    site.wait_ended(*labels)
    assert second.returncode is None
    site.assert_laws(may_repeat=labels)


def test_c14_a_long_job_is_not_taken_from_a_living_worker(site: Site, full: bool) -> None:
    """Liveness decides, not how long a job runs: here more than three times the lease, on the event loop and in a thread."""
    site.pair()
    seconds = 12 if full else 3.2
    site.enqueue(site.tasks.work, "async", seconds=seconds)
    site.enqueue(site.tasks.sync_work, "sync", seconds=seconds)
    gate = site.gate()

    site.wait_ended("async", "sync", timeout=seconds * SLOW)
    site.enqueue(site.tasks.work, "killed", gate=str(gate))
    site.wait_started("killed")
    site.worker_of("killed").kill()

    took = site.wait_started("killed", 2, timeout=TAKEN_OVER)
    print(f"taken over after {took:.2f} s")
    gate.open()
    site.assert_laws(may_repeat={"killed"})


def test_c15_delayed_jobs_run_once_each_whatever_the_lease(site: Site, full: bool) -> None:
    """Fifty jobs that are due after several leases, and a worker that is restarted meanwhile."""
    workers = site.ready(*(site.start_worker() for _ in range(3)))
    delay = 10.0 if full else 2.5
    begun = time.monotonic_ns()
    labels = [f"due-{number}" for number in range(50)]
    for label in labels:
        site.enqueue(site.tasks.work.using(delay=delay), label)

    workers[0].send(signal.SIGTERM)
    assert workers[0].wait() == 0
    site.start_worker()

    site.wait_ended(*labels, timeout=delay + 10)
    late = [(run.started - begun) / 1e9 - delay for run in site.reading().runs]
    print(f"late by {min(late):.3f} to {max(late):.3f} s")
    assert min(late) >= -0.01
    assert max(late) < 1 * SLOW
    site.assert_laws()


def test_c16_a_job_that_runs_out_of_time_is_never_in_two_places(site: Site, full: bool) -> None:
    """A time limit as long as the lease: the retry and the delivery it comes from never both run."""
    site.ready(*(site.start_worker() for _ in range(3)))
    hangs = 5 if full else 1
    site.enqueue(site.tasks.unique.using(timeout=site.lease, retries=20), "key/1", seconds=0.05, gate=str(site.folder / "never"))
    site.wait_started("key/1", hangs, timeout=hangs * 10)
    (site.folder / "never").touch()

    reading = site.assert_laws(timeout=30)

    attempts = [run.attempt for run in sorted(reading.runs, key=lambda run: run.started)]
    assert attempts == list(range(1, len(attempts) + 1))
    assert len(attempts) > hangs - 1


def test_c17_a_poison_job_is_dead_after_four_deaths_and_the_good_ones_finish(site: Site) -> None:
    """Issue 3, "What it must show" 5: one poison job among 200 good ones, three workers that are replaced when they die."""
    good = 200
    with Replaced(site, 3) as replaced:
        site.enqueue_many(site.tasks.work, [f"before-{number}" for number in range(good // 2)], seconds=0.01)
        site.enqueue(site.tasks.poison, "poison")
        site.enqueue_many(site.tasks.work, [f"behind-{number}" for number in range(good // 2)], seconds=0.01)
        replaced.until(lambda: len(site.dead_reasons()) == 1, timeout=60)
        labels = site.accepted - {"poison"}
        replaced.until(lambda: not site.ledger.read().missing(labels), timeout=30)

        reading = site.assert_laws(may_repeat=site.accepted, dead={"poison"})

    assert reading.starts["poison"] <= 4
    assert replaced.deaths == reading.starts["poison"]
    assert "worker lost" in site.dead_reasons()[0]
    assert site.enqueue(site.tasks.poison, "poison").duplicate is False  # its lock is free


class Replaced:
    """Keeps a number of workers running: one that dies is replaced."""

    def __init__(self, site: Site, number: int) -> None:
        self._site = site
        self._workers = site.ready(*(site.start_worker(concurrency=20) for _ in range(number)))
        self.deaths = 0

    def until(self, condition: Callable[[], bool], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, f"not within {timeout} s: {condition}"
            for worker in list(self._workers):
                if worker.returncode is not None:
                    self._workers.remove(worker)
                    self._workers.append(self._site.start_worker(concurrency=20))
                    self.deaths += 1
            time.sleep(0.02)

    def __enter__(self) -> "Replaced":
        return self

    def __exit__(self, *exc: object) -> None:
        self._workers.clear()


def test_c18_a_killed_workers_job_goes_on_at_a_worker_that_is_up(site: Site, full: bool) -> None:
    """Again and again, without any process being started for it."""
    deaths = 3 if full else 1
    site.ready(*(site.start_worker() for _ in range(deaths + 1)))
    gate = site.gate()
    job = site.enqueue(site.tasks.tracked, "long", gate=str(gate))
    took = []
    for number in range(1, deaths + 1):
        site.wait_started("long", number)
        site.worker_of("long").kill()
        site.enqueue(site.tasks.work, f"short-{number}")
        took.append(site.wait_started("long", number + 1, timeout=TAKEN_OVER))
        site.wait_ended(f"short-{number}")
    gate.open()

    assert job.result(timeout=10) == "long"
    print("started elsewhere after", ", ".join(f"{seconds:.2f} s" for seconds in took))
    assert job.status() == "succeeded"
    site.assert_laws(may_repeat={"long"})


@pytest.mark.cases
def test_c19_a_name_that_comes_again_is_no_obstacle_and_shares_nothing(site: Site) -> None:
    """Containers give the same host name and process id again; here the whole name is the same."""
    gate = site.gate()
    victim = site.worker(name="w1")
    site.enqueue(site.tasks.work, "orphan", gate=str(gate))
    site.wait_started("orphan")
    victim.kill()

    site.ready(*(site.start_worker(name="w1") for _ in range(2)))

    site.wait_started("orphan", 2, timeout=TAKEN_OVER)
    gate.open()
    names = {found["name"] for found in site.client.xinfo_consumers(site.keys.stream, "fastq")}
    live = set(site.client.zrange(site.keys.consumers, 0, -1))
    assert len(live) == 2
    assert names <= live
    site.assert_laws(may_repeat={"orphan"})


@pytest.mark.cases
def test_c20_jobs_of_a_dead_worker_are_found_behind_any_number_of_living_ones(site: Site) -> None:
    """More jobs in living hands than one tick looks at."""
    gate = site.gate()
    dead = site.worker(concurrency=5)
    orphans = [f"orphan-{number}" for number in range(5)]
    for label in orphans:  # an entry each
        site.enqueue(site.tasks.work.using(timeout=None), label, gate=str(gate))
    wait_until(lambda: len(site.ledger.read().starts) == 5)
    site.worker(concurrency=300)
    held = [f"held-{number}" for number in range(250)]
    for label in held:
        site.enqueue(site.tasks.work.using(timeout=None), label, gate=str(gate))
    wait_until(lambda: len(site.ledger.read().starts) == 255)

    dead.kill()

    wait_until(lambda: all(site.ledger.read().starts[label] == 2 for label in orphans), timeout=TAKEN_OVER)
    assert all(site.ledger.read().starts[label] == 1 for label in held)
    gate.open()
    site.assert_laws(may_repeat=orphans)


@pytest.mark.cases
def test_c21_nothing_that_comes_late_brings_an_ended_job_back(site: Site, full: bool) -> None:
    """Jobs are cancelled while they run, with records that live for a second only: no key without a TTL, no empty job."""
    site.pair(concurrency=50)
    count = 5000 if full else 300
    jobs = []
    for number in range(count):
        jobs.append(site.tasks.tracked.using(retention=1).enqueue(f"job-{number}", seconds=number % 10 / 100))
        if number % 3 == 0:
            jobs[number // 2].cancel()

    site.assert_drained()

    reading = site.reading()
    assert set(reading.starts) <= {f"job-{number}" for number in range(count)}
    assert reading.repeated() == {}
    wait_until(lambda: {job.status() for job in jobs} <= {"succeeded", "cancelled"})
    assert site.keys_without_ttl() <= {"stream", "front", "suspects", "consumers", "stats", "watch"}


def test_c22_a_worker_that_was_held_up_takes_nothing_from_itself(site: Site) -> None:
    """One task holds the event loop for three leases; the jobs beside it start once."""
    worker = site.worker(concurrency=10)
    gate = site.gate()
    labels = [f"beside-{number}" for number in range(5)]
    for label in labels:
        site.enqueue(site.tasks.work, label, gate=str(gate))
    for label in labels:
        site.wait_started(label)

    site.enqueue(site.tasks.blocks, "blocks", 3 * site.lease)
    site.wait_ended("blocks")
    gate.open()

    reading = site.assert_laws()
    assert reading.repeated() == {}
    assert worker.returncode is None
    worker.wait_line("task=blocks .*held the event loop")


def message(site: Site, label: str, **kwargs: object) -> bytes:
    """The message of a job as a producer would make it."""
    now = int(time.time() * 1000)
    return Template("work").encode((label,), kwargs, new_uid(now), now)
