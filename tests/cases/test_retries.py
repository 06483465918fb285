"""Field cases C45 to C47: tasks that nobody knows, delays beyond all bounds, jobs that never succeed."""

import json
import math
import time

import pytest

from fastq import Backoff, Unique
from fastq.codec import Message
from tests.cases.site import SLOW, Site
from tests.support.process import script, wait_until

UNKNOWN_TASK = """
import json, sys
from fastq import FastQ
from fastq.logs import set_up
from tests.support.ledger import Ledger
told = json.loads(sys.argv[1])
set_up()
app = FastQ(told["url"], namespace=told["namespace"], lease=told["lease"])
async def a(label: str): pass
async def b(label: str):
    with Ledger.here().run(label): pass
app.task(a, name="a")
if told["knows_b"]:
    app.task(b, name="b")
app.worker(queues=["default"]).run()
"""


@pytest.mark.cases
@pytest.mark.timeout(300)
def test_c45_a_task_that_an_old_worker_does_not_know_waits_for_a_new_one(site: Site) -> None:
    """A rolling deploy: given back with a bounded backoff, not counted as attempts, their locks kept."""
    told = {"url": site.server.url, "namespace": site.namespace, "lease": site.lease}
    old = script(UNKNOWN_TASK, json.dumps({**told, "knows_b": False}), env=site.ledger.environment)
    site.workers += site.ready(old)
    for number in range(20):
        options = {"unique": Unique(ttl=60, key=lambda label: label)} if number % 2 else {}
        site.app.using(**options).enqueue("b", label=f"b-{number}")
        site.accepted.add(f"b-{number}")
    wait_until(lambda: len(site.log_lines("'b' is not known here: given back")) >= 20)
    begun, used = time.monotonic(), len(site.log_lines("given back"))
    time.sleep(1)
    assert len(site.log_lines("given back")) - used <= 50 * (time.monotonic() - begun)  # each twice a second at most

    new = script(UNKNOWN_TASK, json.dumps({**told, "knows_b": True}), env=site.ledger.environment)
    site.workers += site.ready(new)

    site.wait_ended(*site.accepted, timeout=200)  # one that the old worker gets again waits for twice as long
    reading = site.assert_laws()
    assert {run.pid for run in reading.runs} == {new.pid}


def test_c46_no_number_of_attempts_makes_a_delay_that_is_none(site: Site) -> None:
    """Neither computing a delay nor storing it can fail, at any attempt."""
    for delay in (1, 5, 1e6):
        for jitter in (0, 0.5):
            policy = Backoff(retries=65_534, delay=delay, factor=2, jitter=jitter, max_delay=600)
            delays = [policy.next_delay(attempt, ValueError()) for attempt in range(1, 5001)]
            assert all(found is not None and math.isfinite(found) and 0 <= found <= 600 * 1.5 for found in delays)
    site.worker()
    job = site.tasks.work.using(delay=3600, retries=65_534).enqueue("many", failures=10**6)
    raw = site.client.hget(site.keys.jobs, job.raw_uid)
    site.client.hset(site.keys.jobs, job.raw_uid, Message(raw).replace(attempt=2000))
    site.client.zadd(site.keys.scheduled, {job.raw_uid: 1})

    site.wait_started("many")

    wait_until(lambda: site.client.zscore(site.keys.scheduled, job.raw_uid))
    assert Message(site.client.hget(site.keys.jobs, job.raw_uid)).attempt == 2001


@pytest.mark.cases
def test_c47_a_job_that_always_fails_ends_and_is_in_nobodys_way(site: Site, full: bool) -> None:
    """All on defaults but, here, the time: one that raises, one that runs out of time."""
    site.worker()
    raises = site.tasks.defaults.enqueue("raises")
    never = str(site.folder / "never")
    site.tasks.work.using(timeout=0.3, retries=2).enqueue("hangs", gate=never)
    begun = time.monotonic()
    good = site.enqueue_many(site.tasks.work, [f"good-{number}" for number in range(50)])

    site.wait_ended(*good)
    print(f"the good ones took {time.monotonic() - begun:.2f} s")
    assert time.monotonic() - begun < 1 * SLOW

    dues = []
    for attempt in range(1, 5):
        site.wait_started("raises", attempt)
        if attempt < 4:  # its delays are brought forward
            due = wait_until(lambda: site.client.zscore(site.keys.scheduled, raises.raw_uid))
            dues.append(due - time.time() * 1000)
            site.client.zadd(site.keys.scheduled, {raises.raw_uid: 1})
    wait_until(lambda: len(site.dead_reasons()) == 2)
    print("delays of", ", ".join(f"{due / 1000:.1f} s" for due in dues))
    assert sorted(dues) == dues
    assert site.reading().starts["raises"] == 4
    assert any("ValueError: it never works" in why for why in site.dead_reasons())
    assert any("longer than 0.3 s" in why for why in site.dead_reasons())
    site.accepted |= {"raises", "hangs"}
    site.assert_laws(dead={"raises", "hangs"})
