"""Field case C36, and a server that is far away. C34, C35 and C37 are in tests/broker and tests/worker."""

import time
from collections.abc import Callable

import pytest

from fastq import FastQ
from tests.cases.site import SLOW, Site
from tests.support.process import wait_until
from tests.support.proxy import Proxy


@pytest.mark.parametrize(
    "options",
    [pytest.param({"socket_timeout": 0.3}, id="short socket_timeout"), pytest.param({}, id="defaults", marks=pytest.mark.cases)],
)
def test_c36_waiting_for_jobs_and_socket_timeouts_do_not_fight(
    make_site: Callable[..., Site], full: bool, options: dict[str, float]
) -> None:
    """Idle queues for longer than the socket timeout, a job now and then: no error, no reconnecting, no delay."""
    site = make_site(redis_options=options)
    site.pair()
    wait_until(lambda: len(site.connections()) >= 6)
    known = site.connections()
    rounds, pause = (9, 7.0) if full else (2, 1.3)
    waits = []
    for number in range(rounds):
        time.sleep(pause)
        begun = time.monotonic_ns()
        site.enqueue(site.tasks.work, f"job-{number}")
        site.wait_ended(f"job-{number}")
        waits.append((next(run.started for run in site.reading().runs if run.key == f"job-{number}") - begun) / 1e6)

    print("started after", ", ".join(f"{ms:.0f} ms" for ms in waits))
    assert max(waits) < 200 * SLOW
    assert site.log_lines("ERROR|trying again") == []
    assert len(site.connections() - known) <= 1  # the producer's own
    site.assert_laws()


def test_an_answer_that_comes_after_its_jobs_were_found_otherwise_runs_them_no_second_time(site: Site, proxy: Proxy) -> None:
    """Two connections of a worker, of which one is slow: what it carries is known, done and settled when it arrives."""
    site.worker(url=proxy.url)
    slow = proxy.on_request(b"BLOCK", "hold_reply")
    assert slow.arrived.wait(10)
    labels = site.enqueue_many(site.tasks.work, [f"job-{number}" for number in range(10)])
    assert slow.done.wait(10)  # the jobs were assigned by the wait

    wait_until(lambda: site.stats().get("succeeded") == 10)
    slow.released.set()

    site.enqueue(site.tasks.work, "after")
    site.wait_ended("after", *labels)
    reading = site.assert_laws()
    assert reading.repeated() == {}
    assert site.stats()["succeeded"] == 11


def test_a_program_may_connect_any_number_of_times(site: Site) -> None:
    """After each of many losses of its connection; a server that is away for long is tried as often."""
    with FastQ(site.server.url, namespace=site.namespace) as app:
        for number in range(150):
            app.enqueue("work", label=f"job-{number}")
            app.close()
    assert site.client.xlen(site.keys.stream) == 150


@pytest.mark.cases
def test_latency_costs_no_job(site: Site, proxy: Proxy) -> None:
    """A server that is far away: 50 ms for each request."""
    proxy.delay = 0.05
    site.pair(url=proxy.url)
    labels = site.enqueue_many(site.tasks.work, [f"job-{number}" for number in range(50)], failures=1)
    site.enqueue(site.tasks.renew, "renewed/1", seconds=2.5)
    site.wait_ended(*labels, "renewed/1", timeout=20)
    site.assert_laws()
