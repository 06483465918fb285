"""Field cases C56, C58 and C59: cancelling, pausing, order. C55 and C60 are in tests/worker, C57 in tests/api."""

import random
import time

import pytest

from fastq.errors import DuplicateJobError, JobIDConflictError
from tests.cases.site import SLOW, Site
from tests.support.process import wait_until


def test_c56_a_cancelled_job_does_no_harm_to_the_next_one_of_its_key(site: Site, full: bool) -> None:
    """Cancelled while it runs, and enqueued again at once: the new one runs to its end, or is refused while the old one stops."""
    rounds = 100 if full else 25
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    site.worker()
    refused = []
    for number in range(rounds):
        old = site.tasks.unique.using(job_id=f"id-{number}").enqueue(f"key{number}/old", seconds=60)
        site.accepted.add(f"key{number}/old")
        if number % 2:
            site.wait_started(f"key{number}/old")
        old.cancel()
        time.sleep(chance.uniform(0, 0.05))
        while True:
            try:
                site.enqueue(site.tasks.unique.using(job_id=f"id-{number}"), f"key{number}/new")
                break
            except (DuplicateJobError, JobIDConflictError) as error:
                refused.append(error.job_uid == old.uid)
                time.sleep(0.02)

    news = [f"key{number}/new" for number in range(rounds)]
    site.wait_ended(*news)
    print(f"refused {len(refused)} times while the old one stopped")
    assert all(refused)
    assert all(site.reading().starts[label] == 1 for label in news)
    assert site.stats()["cancelled"] == rounds
    site.accepted = {*news, *(label for label in site.reading().starts)}
    site.assert_laws()


def test_c58_nothing_starts_while_its_queue_is_paused(site: Site) -> None:
    """Not by a reader that waits already, not what was fetched, fell due or came back meanwhile; all of it on resuming."""
    queue = site.app.queue()
    site.pair(concurrency=2)
    gate = site.gate()
    site.enqueue(site.tasks.work, "killed", gate=str(gate))
    site.wait_started("killed")
    victim = site.worker_of("killed")
    labels = [*site.enqueue_many(site.tasks.work, [f"fetched-{number}" for number in range(20)], seconds=0.3)]
    site.wait_started("fetched-0")
    queue.pause()
    paused = time.monotonic_ns()
    labels += site.enqueue_many(site.tasks.work, [f"late-{number}" for number in range(10)])
    site.enqueue(site.tasks.work.using(delay=0.5), "due")
    victim.kill()
    newcomer = site.worker(concurrency=2)
    wait_until(lambda: site.stats().get("reclaimed", 0) >= 1)
    time.sleep(1.0)
    started = [(run.key, (run.started - paused) / 1e9) for run in site.reading().runs if run.started > paused]
    assert all(seconds <= 1.0 for _, seconds in started), started
    gate.open()

    resumed = time.monotonic_ns()
    queue.resume()
    site.wait_ended(*labels, "due", "killed", timeout=20)

    first = min(run.started for run in site.reading().runs if run.started > resumed)
    print(f"the first started {(first - resumed) / 1e6:.0f} ms after resuming")
    assert first - resumed < 1e9 * SLOW
    assert newcomer.returncode is None
    site.assert_laws(may_repeat=site.accepted)


@pytest.mark.cases
def test_c59_a_flooded_queue_holds_up_no_other_of_its_rank(site: Site, full: bool) -> None:
    """Three queues that are served in turn: none waits long for the one that is never empty."""
    site.worker(queues=None, concurrency=4)
    flood, one, other = (site.tasks.of_queue[name] for name in "abc")
    site.accepted |= {f"flood-{number}" for number in range(2000 if full else 400)}
    flood.enqueue_many([(label, 0.01) for label in site.accepted])
    site.wait_started("flood-0")
    site.enqueue(one, "one")
    site.enqueue(other, "other")

    assert site.wait_ended("one", "other") < 1 * SLOW

    assert site.reading().missing(site.accepted)  # of the flood there is more
    site.assert_laws(timeout=30)


@pytest.mark.cases
def test_c59_in_strict_order_the_low_queue_waits_for_the_high_one(site: Site) -> None:
    """Retried and delayed jobs keep their queue, and so their rank; what waits is counted."""
    high, low = (site.tasks.of_queue[name] for name in "ab")
    for number in range(40):
        site.enqueue(low, f"low-{number}", 0.02)
        site.enqueue(high, f"high-{number}", 0.02, failures=int(number == 0))
    site.worker(queues=["a", "b"], concurrency=1)
    site.wait_ended("high-39")
    assert site.app.queue("b").counts().waiting > 20

    reading = site.assert_laws()

    order = [run.key for run in sorted(reading.runs, key=lambda run: run.started)]
    assert sum(label.startswith("low") for label in order[:40]) <= 2
    assert order.index("high-0", 1) < order.index("low-30")
