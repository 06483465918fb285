"""Field cases C48 and C49: what a worker has fetched when it ends. C50 is in tests/fleet, C51 in tests/worker."""

import random
import signal
import time

import pytest

from tests.cases.site import Site
from tests.support.process import wait_until


@pytest.mark.cases
def test_c48_what_was_fetched_and_not_started_is_free_at_once(site: Site, full: bool) -> None:
    """Stopped at random moments, by either signal; at the end every job has run once to its end."""
    rounds, count, seconds = (20, 100, 1.0) if full else (3, 24, 0.2)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    labels = site.enqueue_many(site.tasks.work, [f"job-{number}" for number in range(count)], seconds=seconds)
    worker = site.worker(concurrency=2)
    waits = []
    for number in range(rounds):
        successor = site.ready(site.start_worker(concurrency=2))[0] if number % 2 == 0 else None
        time.sleep(chance.uniform(0, 0.5))
        worker.send(chance.choice((signal.SIGTERM, signal.SIGINT)))
        assert worker.wait() == 0
        ended = time.monotonic()
        wait_until(lambda pid=worker.pid: not any(f"-{pid}-" in name for name in site.consumers()))
        waits.append(time.monotonic() - ended)
        worker = successor or site.worker(concurrency=2)

    site.wait_ended(*labels, timeout=count * seconds)
    reading = site.assert_laws()
    assert reading.repeated() == {}
    assert max(waits) < 1  # not only when a lease has ended


def test_c49_recycling_is_not_a_workers_own(site: Site) -> None:
    """A fleet recycles its processes (tests/fleet); a worker alone has no such option, and says so."""
    with pytest.raises(TypeError, match="max_jobs"):
        site.app.worker(max_jobs=5)
