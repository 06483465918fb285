"""Field cases C39, C40, C42 and C44: due jobs, and the loops that see to them, through faults of the server."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
import redis

from fastq import FastQError
from tests.cases.site import SLOW, Site
from tests.support.process import wait_until
from tests.support.proxy import Proxy
from tests.support.servers import Server


def test_c39_due_jobs_are_moved_once_whatever_dies_meanwhile(site: Site, proxy: Proxy, full: bool) -> None:
    """All due in the same second; workers killed and connections cut all the time; one of the jobs has lost its message."""
    count, kills = (2000, 25) if full else (400, 2)
    labels = [f"job-{number}" for number in range(count)]
    due = datetime.now(UTC) + timedelta(seconds=2)
    jobs = site.tasks.work.using(at=due).enqueue_many([{"label": label} for label in labels])
    lost = jobs[count // 2]
    site.client.hdel(site.keys.jobs, lost.raw_uid)
    labels.remove(f"job-{count // 2}")
    site.accepted.update(labels)
    site.ready(*(site.start_worker(url=proxy.url) for _ in range(3 if full else 2)))

    time.sleep(max(0.0, (due - datetime.now(UTC)).total_seconds()))
    for _ in range(kills):
        proxy.cut()
        time.sleep(0.2)
        site.workers[0].kill()
        site.workers.append(site.workers.pop(0))
        site.start_worker(url=proxy.url)
    site.worker()

    site.wait_ended(*labels, timeout=30)
    # A killed worker's own jobs run again; being moved twice would start a job twice where nobody died.
    reading = site.assert_laws(may_repeat=labels)
    assert site.stats()["lost"] == 1
    killed = {child.pid for child in site.workers if child.returncode is not None}
    again = reading.repeated()
    assert again.keys() <= {run.key for run in reading.runs if run.pid in killed}


@contextlib.contextmanager
def fault(kind: str, site: Site, proxy: Proxy, seconds: float) -> Iterator[None]:
    """One way for the server to fail, from the beginning of the block to its end."""
    client = site.client
    if kind == "refused":
        proxy.refuse()
        proxy.cut()
        yield
        proxy.accept()
    elif kind == "silent":
        proxy.black_hole()
        yield
        proxy.flow()
    elif kind == "OOM":
        client.config_set("maxmemory", 1)
        yield
        client.config_set("maxmemory", 0)
    elif kind == "READONLY":
        client.replicaof("127.0.0.1", 1)
        yield
        client.replicaof("NO", "ONE")
    elif kind == "NOREPLICAS":
        client.config_set("min-replicas-to-write", 1)
        yield
        client.config_set("min-replicas-to-write", 0)
    elif kind == "WRONGTYPE":
        names = (b"consumers", b"stats", b"watch")
        for name in names:
            client.rename(site.keys.prefix + name, site.keys.prefix + name + b"-aside")
            client.rpush(site.keys.prefix + name, "no such thing")
        yield
        for name in names:
            client.rename(site.keys.prefix + name + b"-aside", site.keys.prefix + name)
    elif kind == "LOADING":
        # A key is read every 20 ms.
        client.mset({f"filler-{number}": "x" * 2000 for number in range(round(seconds / 0.02))})
        client.bgrewriteaof()
        wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
        slowly = {"key-load-delay": 20_000, "loading-process-events-interval-bytes": 1024}
        starting = threading.Thread(target=site.server.restart, args=(slowly,))
        starting.start()
        wait_until(lambda: _is_loading(client))
        yield
        starting.join()


def _is_loading(client: redis.Redis) -> bool:
    try:
        client.ping()
    except redis.BusyLoadingError:
        return True
    except redis.ConnectionError:
        pass
    return False


OFTEN = ["READONLY"]
SELDOM = ["WRONGTYPE", "refused", "silent", "OOM", "NOREPLICAS", "LOADING"]  # the short forms of these are in tests/worker


@pytest.mark.parametrize("kind", [*OFTEN, *(pytest.param(kind, marks=pytest.mark.cases) for kind in SELDOM)])
def test_c40_every_loop_of_a_worker_outlives_an_error_of_the_server(
    make_site: Callable[..., Site], own_server: Server, full: bool, kind: str
) -> None:
    """Then all of them work: delayed and retried jobs, the recovery of a dead worker's, the renewal of locks."""
    seconds = 10.0 if full else 1.0
    with Proxy(own_server) as proxy:
        site = make_site(own_server)
        gate = site.gate()
        victim = site.worker(url=proxy.url)
        site.enqueue(site.tasks.work, "killed", gate=str(gate))
        site.wait_started("killed")
        worker = site.worker(url=proxy.url)
        site.enqueue(site.tasks.renew, "renewed/1", gate=str(gate))
        site.wait_started("renewed/1")
        site.enqueue(site.tasks.work, "traffic")
        begun, before = time.monotonic(), len(site.log_lines("WARNING|ERROR"))

        with fault(kind, site, proxy, seconds):
            time.sleep(seconds)

        lasted = time.monotonic() - begun
        lines = site.log_lines("WARNING|ERROR")[before:]
        assert len(lines) < 2 * 10 * lasted, "\n".join(lines)
        lock = next(iter(site.client.scan_iter(match=site.keys.unique(b"renew:") + b"*")), None)
        site.enqueue(site.tasks.work.using(delay=0.5), "delayed")
        site.enqueue(site.tasks.work, "retried", failures=1)
        took = site.wait_ended("delayed", "retried", timeout=5 * SLOW)
        print(f"{kind}: delayed and retried after {took:.2f} s")
        victim.kill()
        site.wait_started("killed", 2)
        if lock is not None:
            wait_until(lambda: site.client.pttl(lock) > 1500)  # of 2 s: it has just been renewed
        gate.open()
        assert worker.returncode is None
        site.assert_laws(may_repeat=site.accepted)  # what the victim had not reported yet runs again


def test_c42_no_due_job_hides_behind_those_that_are_not_due(site: Site, full: bool) -> None:
    later, due = (10_000, 5_000) if full else (2_000, 1_000)
    site.tasks.work.using(delay=3600).enqueue_many([{"label": f"later-{number}"} for number in range(later)])
    labels = [f"due-{number}" for number in range(due)]
    site.client.config_set("slowlog-log-slower-than", 150_000)
    site.client.slowlog_reset()
    site.pair()

    begun = time.monotonic()
    site.tasks.work.using(delay=1).enqueue_many([{"label": label} for label in labels])
    site.wait_ended(*labels, timeout=6 * SLOW)

    print(f"{due} due jobs had run {time.monotonic() - begun - 1:.2f} s after their time")
    assert site.client.zcard(site.keys.scheduled) == later
    assert site.reading().repeated() == {}
    slow = [entry for entry in site.client.slowlog_get() if site.namespace.encode() in entry["command"]]
    assert slow == []


def test_c44_aware_times_mean_the_same_everywhere_and_naive_ones_are_refused(site: Site) -> None:
    """The worker lives in another time zone than the producer."""
    site.worker()
    india = timezone(timedelta(hours=5, minutes=30))
    begun, moment = time.monotonic_ns(), datetime.now(UTC) + timedelta(seconds=1)
    ways = {
        "utc": {"at": moment},
        "offset": {"at": moment.astimezone(india)},
        "zone": {"at": moment.astimezone(ZoneInfo("America/New_York"))},
        "timedelta": {"delay": timedelta(seconds=1)},
        "int": {"delay": 1},
        "float": {"delay": 1.0},
    }
    for label, options in ways.items():
        site.enqueue(site.tasks.work.using(**options), label)
    with pytest.raises(FastQError, match="no time zone"):
        site.tasks.work.using(at=moment.replace(tzinfo=None))

    site.wait_ended(*ways)

    late = {run.key: (run.started - begun) / 1e9 - 1 for run in site.reading().runs}
    assert all(-0.05 <= seconds < 1 * SLOW for seconds in late.values()), late
    site.assert_laws()
