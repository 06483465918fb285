"""A frozen worker does no harm, a frozen server costs no worker its life, and a killed worker's jobs go on soon."""

import signal
import time
from collections.abc import Callable

import pytest

from tests.cases.site import SLOW, Site
from tests.support.process import wait_stopped, wait_until


def test_a_frozen_worker_that_wakes_up_does_no_harm(site: Site) -> None:
    """None of its settles counts, no lock of a successor is touched, its `renew` runs end within a second of waking."""
    frozen = site.worker()
    gate = site.gate()
    site.enqueue(site.tasks.renew, "renewed/1", gate=str(gate))
    site.enqueue(site.tasks.unique, "locked/1", gate=str(gate))
    site.enqueue(site.tasks.work, "plain", gate=str(gate))
    for label in site.accepted:
        site.wait_started(label)
    successor = site.worker()
    frozen.send(signal.SIGSTOP)
    wait_stopped(frozen.pid)
    for label in site.accepted:
        site.wait_started(label, 2, timeout=8 * site.lease + 4 * SLOW)
    # The lock becomes free behind the frozen one's back, and another job takes it: a late release would be a theft.
    locks = {key: site.client.get(key) for key in site.client.scan_iter(match=site.keys.unique(b"") + b"*", count=1000)}
    assert len(locks) == 2
    assert site.stats()["reclaimed"] == 3  # once each: what the frozen one waited for on the server took none of them back
    before = site.stats().get("succeeded", 0)

    woken = time.monotonic_ns()
    frozen.send(signal.SIGCONT)

    ended = wait_until(lambda: [r.ended for r in site.reading().runs if r.key == "renewed/1" and r.pid == frozen.pid and r.ended])
    print(f"its renewed run ended {(ended[0] - woken) / 1e6:.0f} ms after it woke up")
    assert ended[0] - woken < 1e9 * SLOW
    # Its other runs go on: nobody can know what they do. They end, and are reported, before those of the successor.
    frozen.wait_line("was taken for dead; its jobs are others' now")
    assert {key: site.client.get(key) for key in locks} == locks
    assert site.stats().get("succeeded", 0) == before

    gate.open()
    site.assert_laws(may_repeat=site.accepted)
    wait_until(lambda: site.stats()["succeeded"] == 3)
    site.enqueue(site.tasks.work, "after")  # both serve their queue
    site.wait_ended("after")
    assert (frozen.returncode, successor.returncode) == (None, None)
    wait_until(lambda: site.stats()["succeeded"] == 4)


def test_a_report_that_a_frozen_worker_sends_on_waking_does_not_count(site: Site) -> None:
    """Its job ends in the moment that it wakes up, before anybody can tell it what has happened."""
    frozen = site.worker()
    gate = site.gate()
    site.enqueue(site.tasks.unique, "locked/1", gate=str(gate))
    site.wait_started("locked/1")
    site.worker()
    frozen.send(signal.SIGSTOP)
    wait_stopped(frozen.pid)
    site.wait_started("locked/1", 2, timeout=8 * site.lease + 4 * SLOW)
    gate.open()
    wait_until(lambda: site.stats().get("succeeded") == 1)
    held = site.gate()
    site.enqueue(site.tasks.unique, "locked/2", gate=str(held))
    site.wait_started("locked/2")
    lock = next(iter(site.client.scan_iter(match=site.keys.unique(b"unique:") + b"*")))
    holder = site.client.get(lock)

    frozen.send(signal.SIGCONT)

    frozen.wait_line("was taken for dead; its jobs are others' now")
    wait_until(lambda: all(run.ended for run in site.reading().runs if run.pid == frozen.pid))
    assert site.client.get(lock) == holder
    assert site.stats()["succeeded"] == 1
    held.open()
    site.assert_laws(may_repeat={"locked/1"})
    assert site.stats()["succeeded"] == 2


@pytest.mark.cases
def test_a_server_that_was_frozen_for_longer_than_the_lease_takes_no_worker_for_dead(
    make_site: Callable[..., Site], own_server: object
) -> None:
    """With default settings, twelve seconds; the short form is in tests/worker."""
    site = make_site(own_server, lease=10)
    site.pair()
    gate = site.gate()
    labels = site.enqueue_many(site.tasks.renew, [f"renewed{number}/1" for number in range(10)], gate=str(gate))
    wait_until(lambda: len(site.ledger.read().starts) == 10)

    site.server.pause()
    time.sleep(12)
    site.server.resume()

    time.sleep(12)
    gate.open()
    site.wait_ended(*labels)
    site.assert_laws(may_repeat=labels)  # renewed runs are cancelled in doubt, and run again
    assert site.stats().get("fenced", 0) == 0
    assert site.stats().get("reclaimed", 0) == 0


@pytest.mark.cases
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("lease", "within"), [(10.0, 12.0), (2.0, 3.0)], ids=["default settings", "lease=2"])
def test_a_killed_workers_job_runs_elsewhere_soon(make_site: Callable[..., Site], lease: float, within: float) -> None:
    """Twenty kills of one of two independent workers, 95 % of them within the lease and a little."""
    site = make_site(lease=lease)
    workers = site.pair()
    took = []
    for number in range(20):
        gate = site.gate()
        label = f"job-{number}"
        site.enqueue(site.tasks.work, label, gate=str(gate))
        site.wait_started(label)
        victim = site.worker_of(label)
        victim.kill()
        took.append(site.wait_started(label, 2, timeout=3 * within))
        gate.open()
        workers.remove(victim)
        workers.append(site.worker())

    took.sort()
    print(f"lease {lease:g} s: p50 {took[9]:.2f} s, p95 {took[18]:.2f} s, max {took[19]:.2f} s")
    assert took[18] < within
    site.assert_laws(may_repeat=site.accepted)
