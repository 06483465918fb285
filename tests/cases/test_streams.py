"""Field cases C24 to C26: what is left in Redis after jobs and workers have gone."""

import signal
import time
from collections.abc import Callable

import pytest

from fastq.broker import requests
from tests.cases.site import Site
from tests.support.process import wait_until
from tests.support.servers import Server


def test_c24_memory_stays_flat_however_many_jobs_go_through(
    make_site: Callable[..., Site], start_server: Callable[..., Server], full: bool
) -> None:
    """Plain, failing and delayed jobs; streams are empty afterwards, no key is left per job."""
    site = make_site(start_server())
    site.pair()
    steps = 4 if full else 2
    count = 5000 if full else 700
    keys, memory = [], []
    for step in range(steps):
        site.enqueue_many(site.tasks.work, [f"plain-{step}-{number}" for number in range(count)])
        site.enqueue_many(site.tasks.work, [f"failing-{step}-{number}" for number in range(count // 20)], failures=1)
        site.accepted |= {f"delayed-{step}-{number}" for number in range(count // 20)}
        site.tasks.work.using(delay=0.3).enqueue_many([(f"delayed-{step}-{number}",) for number in range(count // 20)])
        site.assert_laws(timeout=60)
        # Keys with a TTL go by themselves; Redis gives memory back to its allocator's pools in its own time.
        keys.append(site.keys_without_ttl())
        site.client.execute_command("MEMORY", "PURGE")
        memory.append(site.client.info("memory")["used_memory"] - _clients_memory(site))
    print("used_memory after each step:", memory)
    assert all(site.client.xlen(stream) == 0 for stream in (site.keys.stream, site.keys.front, site.keys.suspects))
    assert keys[0] == keys[-1]
    assert memory[-1] < memory[0] * 1.05 + 50_000


def _clients_memory(site: Site) -> int:
    return int(site.client.info("memory").get("mem_clients_normal", 0))


def test_c25_an_entry_that_somebody_deleted_is_counted_as_lost_and_holds_up_nothing(site: Site) -> None:
    dead = b"dead-worker"
    call = site.app.broker.call
    call(requests.join(site.keys, dead))
    for number in range(5):
        site.enqueue(site.tasks.work, f"old-{number}")
    found = call(requests.fetch(site.keys, dead, entries=10, suspects=True))
    site.client.xdel(site.keys.stream, found.stream[1][0], found.stream[3][0])
    site.accepted -= {"old-1", "old-3"}

    worker = site.worker()
    for number in range(3):
        site.enqueue(site.tasks.work, f"fresh-{number}")

    site.wait_ended(*site.accepted)
    site.assert_laws()
    assert site.stats()["lost"] == 2
    worker.wait_line("ERROR .*2 jobs had lost their messages")
    time.sleep(3 * site.lease / 8)  # some ticks
    assert len(site.log_lines("had lost their messages")) == 1


@pytest.mark.cases
def test_c26_workers_leave_no_name_behind_however_they_end(site: Site, full: bool) -> None:
    """In good order, killed while idle, killed with jobs in hand."""
    rounds = 10 if full else 2
    survivor = site.worker()
    labels = []
    for _ in range(rounds):
        stopped, killed, busy = site.ready(*(site.start_worker() for _ in range(3)))
        gate = site.gate()
        survivor.send(signal.SIGSTOP)
        for number in range(3):
            label = f"job-{len(labels)}-{number}"
            site.enqueue(site.tasks.work, label, gate=str(gate))
            labels.append(label)
            site.wait_started(label)
        survivor.send(signal.SIGCONT)
        busy.kill()
        killed.kill()
        stopped.send(signal.SIGTERM)
        gate.open()
        assert stopped.wait() == 0

    site.wait_ended(*labels, timeout=20)
    wait_until(lambda: len(site.consumers()) == 1)
    assert f"-{survivor.pid}-" in site.consumers().pop()
    site.assert_laws(may_repeat=labels)
