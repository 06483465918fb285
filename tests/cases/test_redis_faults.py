"""Field cases C27 to C33: a Redis that forgets, restarts, fails over, is full, is busy, or refuses for a while."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from fastq import BrokerError, BulkError, FastQ
from tests.cases.sentinels import Sentinels, in_step, replicate
from tests.cases.site import SLOW, Site
from tests.cases.tasks import Tasks
from tests.support.process import Child, wait_until
from tests.support.servers import Server


def cpu_seconds(child: Child) -> float:
    """What the process has used so far."""
    fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


@pytest.mark.parametrize(
    "loss",
    [
        "FLUSHALL",
        pytest.param("DEL of the streams", marks=pytest.mark.cases),
        pytest.param("XGROUP DESTROY", marks=pytest.mark.cases),
        "restart without data",
    ],
)
def test_c27_a_worker_makes_its_group_again_by_itself(
    make_site: Callable[..., Site], start_server: Callable[..., Server], loss: str
) -> None:
    server = start_server()
    site = make_site(server)
    worker = site.worker()
    site.enqueue(site.tasks.work, "before")
    site.wait_ended("before")
    begun, used = time.monotonic(), cpu_seconds(worker)

    if loss == "FLUSHALL":
        site.client.flushall()
    elif loss == "DEL of the streams":
        site.client.delete(site.keys.stream, site.keys.front, site.keys.suspects)
    elif loss == "XGROUP DESTROY":
        for stream in (site.keys.stream, site.keys.front, site.keys.suspects):
            site.client.xgroup_destroy(stream, "fastq")
    else:
        server.restart()
    labels = [f"after-{number}" for number in range(10)]
    for number, label in enumerate(labels):
        site.enqueue(site.tasks.work.using(delay=0.5) if number % 2 else site.tasks.work, label, failures=int(number % 3 == 0))

    took = site.wait_ended(*labels, timeout=5 * SLOW)
    seconds = time.monotonic() - begun
    print(f"all ten have run after {took:.2f} s, {(cpu_seconds(worker) - used) / seconds:.0%} of a core")
    complaints = [line for line in site.log_lines("WARNING|ERROR") if "meant to fail" not in line]
    assert len(complaints) < 10 * max(1.0, seconds), "\n".join(complaints)
    assert cpu_seconds(worker) - used < 0.5 * seconds + 0.5
    assert worker.returncode is None
    site.assert_laws()


def test_c27_a_server_that_stays_away_is_complained_about_a_few_times_a_second(own_site: Site, full: bool) -> None:
    worker = own_site.worker()
    begun, used, before = time.monotonic(), cpu_seconds(worker), len(own_site.log_lines("WARNING|ERROR"))

    own_site.server.kill()
    wait_until(lambda: len(own_site.log_lines("WARNING|ERROR")) > before)
    time.sleep(12 if full else 1.5)

    seconds = time.monotonic() - begun
    lines = own_site.log_lines("WARNING|ERROR")[before:]
    assert len(lines) < 10 * seconds, "\n".join(lines)
    assert cpu_seconds(worker) - used < 0.3 * seconds + 0.3
    assert worker.returncode is None
    own_site.server.restart()
    own_site.enqueue(own_site.tasks.work, "back")
    own_site.wait_ended("back")
    own_site.assert_laws()


def test_c28_a_failover_loses_and_repeats_nothing_but_the_tail_that_was_not_replicated(
    make_site: Callable[..., Site], start_server: Callable[..., Server], tmp_path: Path
) -> None:
    """Found through real Sentinels; the primary dies with a job in hand and a tail that its replica has not seen."""
    primary = start_server()
    replica = replicate(primary, start_server)
    sentinels = Sentinels(primary, tmp_path)
    try:
        site = make_site(primary, redis_options={"socket_connect_timeout": 1})
        worker = site.worker(url=sentinels.url)
        labels = site.enqueue_many(site.tasks.work, [f"job-{number}" for number in range(100)])
        gate = site.gate()
        site.enqueue(site.tasks.work, "in-hand", gate=str(gate))
        site.enqueue(site.tasks.work.using(delay=3), "scheduled")
        site.wait_ended(*labels)
        wait_until(lambda: site.stats().get("succeeded") == 100)
        in_step(primary)

        replica.pause()
        tail = site.enqueue_many(site.tasks.work, [f"tail-{number}" for number in range(20)])
        site.wait_ended(*tail)
        primary.kill()
        replica.resume()
        begun = time.monotonic()
        wait_until(lambda: sentinels.primary_port() == replica.port, timeout=20)
        gate.open()
        promoted = Site(replica, site.namespace, tmp_path)
        promoted.ledger, promoted.accepted = site.ledger, site.accepted
        wait_until(lambda: _enqueues(promoted, "after"), timeout=10)

        site.wait_ended("after", "in-hand", "scheduled", timeout=10)

        print(f"ran again {time.monotonic() - begun:.1f} s after the primary died")
        assert worker.returncode is None
        reading = promoted.assert_laws(may_repeat=tail)
        assert not [label for label in reading.repeated() if label not in tail]
        promoted.app.close()
    finally:
        sentinels.close()


def _enqueues(site: Site, label: str) -> bool:
    try:
        site.enqueue(site.tasks.work, label)
    except BrokerError:
        return False
    return True


@pytest.mark.cases
def test_c28_a_producer_follows_a_failover(
    make_site: Callable[..., Site], start_server: Callable[..., Server], tmp_path: Path
) -> None:
    """Its calls wait for the new primary: none of them fails that can be repeated."""
    primary = start_server()
    replica = replicate(primary, start_server)
    sentinels = Sentinels(primary, tmp_path)
    try:
        site = make_site(primary)
        with FastQ(sentinels.url, namespace=site.namespace) as app:
            tasks = Tasks(app)
            tasks.unique.enqueue("first/1")
            in_step(primary)
            primary.kill()
            wait_until(lambda: sentinels.primary_port() == replica.port, timeout=20)

            job = tasks.unique.enqueue("second/1")

            assert not job.duplicate
            assert len(list(replica.client().scan_iter(match=f"{site.namespace}:*unique:*"))) == 2
    finally:
        sentinels.close()


def test_c29_losing_the_scripts_all_the_time_changes_nothing(own_site: Site, full: bool) -> None:
    """SCRIPT FLUSH every 100 ms under a mix of everything that calls a script."""
    site, seconds = own_site, 10.0 if full else 1.5
    site.pair()
    count = 500 if full else 75
    with every(0.1, lambda: site.client.script_flush("SYNC")):
        begun = time.monotonic()
        for number in range(count):
            kind = number % 5
            if kind == 0:
                site.enqueue(site.tasks.work, f"plain-{number}")
            elif kind == 1:
                site.enqueue_many(site.tasks.work, [f"bulk-{number}-{place}" for place in range(5)])
            elif kind == 2:
                site.enqueue(site.tasks.work, f"retried-{number}", failures=1)
            elif kind == 3:
                site.enqueue(site.tasks.work.using(delay=0.3), f"delayed-{number}")
            else:
                site.enqueue(site.tasks.unique, f"unique{number}/1")
            time.sleep(max(0.0, begun + seconds * number / count - time.monotonic()))
        reading = site.assert_laws()
    assert site.log_lines("WARNING|ERROR") == site.log_lines("failed, next in|nothing on disk|its lock lives")
    assert all(count == 1 for (label, count) in reading.starts.items() if not label.startswith("retried"))


@contextmanager
def every(seconds: float, call: Callable[[], object]) -> Iterator[None]:
    """Call something again and again within the block."""
    stop = threading.Event()

    def loop() -> None:
        while not stop.wait(seconds):
            call()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_c30_a_worker_goes_on_after_each_way_of_losing_its_server(own_site: Site, full: bool) -> None:
    """Killed and away for a while, bounced three times, all connections closed; cancelling and pausing work again too."""
    site = own_site
    worker = site.worker()
    gate = site.gate()
    held = site.enqueue(site.tasks.work, "held", gate=str(gate), seconds=0.01)
    site.wait_started("held")
    for fault in ("away", "bounced", "cut"):
        if fault == "away":
            site.server.kill()
            time.sleep(5 if full else 0.7)
            site.server.restart()
        elif fault == "bounced":
            for _ in range(3):
                site.server.kill()
                site.server.restart()
        else:
            site.client.client_kill_filter(_type="normal", skipme=True)
        labels = [f"{fault}-{number}" for number in range(20)]
        for number, label in enumerate(labels):
            site.enqueue(site.tasks.work.using(delay=number % 2) if number % 2 else site.tasks.work, label)
        took = site.wait_ended(*labels, timeout=6 * SLOW)
        print(f"{fault}: all have run {took:.2f} s after the server was back")

    held.cancel()
    wait_until(lambda: site.stats().get("cancelled") == 1)
    gate.open()
    site.accepted.discard("held")
    reading = site.reading()
    assert worker.returncode is None
    assert reading.starts["held"] == 1
    site.accepted.add("held")
    site.assert_laws()


def test_c31_a_full_server_refuses_new_jobs_and_lets_the_old_ones_end(
    make_site: Callable[..., Site], start_server: Callable[..., Server]
) -> None:
    """Nothing half-written, no worker falls, and the queue drains by itself."""
    server = start_server(config={"maxmemory-policy": "noeviction"})
    site = make_site(server)
    worker = site.worker()
    gate = site.gate()
    site.enqueue(site.tasks.work, "in-hand", gate=str(gate), failures=1)
    site.wait_started("in-hand")
    site.app.queue().pause()
    site.enqueue_many(site.tasks.work, [f"waiting-{number}" for number in range(500)])
    site.client.config_set("maxmemory", site.client.info("memory")["used_memory"] + 200_000)
    refused: BrokerError | None = None
    for number in range(10_000):
        try:
            site.enqueue(site.tasks.unique, f"key{number}/" + "x" * 1000)
        except BrokerError as error:
            refused = error
            break
    assert refused is not None
    assert "out of memory" in str(refused)
    assert "nothing was written" in str(refused)
    locks = list(site.client.scan_iter(match=site.keys.unique(b"") + b"*", count=1000))
    assert len(locks) == sum(label.startswith("key") for label in site.accepted)
    with pytest.raises(BulkError, match="out of memory") as bulk:
        site.tasks.work.enqueue_many([("y" * 1000,)] * 1000)
    assert bulk.value.result.enqueued == 0

    second = site.worker()
    gate.open()
    site.app.queue().resume()

    reading = site.assert_laws()
    site.client.config_set("maxmemory", 0)
    site.enqueue(site.tasks.work, "accepted-again")
    site.wait_ended("accepted-again")
    assert (worker.returncode, second.returncode) == (None, None)
    assert [run.attempt for run in reading.runs if run.key == "in-hand"] == [1, 2]
    assert len(site.log_lines("ERROR")) == 0


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lru"])
def test_c32_a_worker_warns_of_a_server_that_evicts(
    make_site: Callable[..., Site], start_server: Callable[..., Server], policy: str
) -> None:
    site = make_site(start_server(config={"maxmemory-policy": policy}))
    worker = site.worker()
    worker.wait_line(f"WARNING .*evicts keys .*maxmemory-policy {policy}.*set maxmemory-policy noeviction")
    worker.wait_line("WARNING .*keeps nothing on disk.*set appendonly yes")


def test_c32_a_worker_warns_of_a_replica_and_is_silent_about_a_sound_server(
    make_site: Callable[..., Site], own_server: Server, start_server: Callable[..., Server]
) -> None:
    site = make_site(own_server)
    site.worker()
    assert site.log_lines("WARNING .*this Redis") == []
    replica = replicate(own_server, start_server, aof="always")
    stray = site.start_worker(url=replica.url)
    stray.wait_line("WARNING .*this Redis is a replica")


def test_c32_a_lock_that_was_evicted_is_taken_again_while_its_job_runs(site: Site) -> None:
    """A `renew` lock comes back with the next beat; any other is noticed missing at the end, and the job is not lost."""
    site.worker()
    gate = site.gate()
    site.enqueue(site.tasks.renew, "renewed/1", gate=str(gate))
    site.enqueue(site.tasks.unique, "plain/1", gate=str(gate))
    site.wait_started("renewed/1")
    site.wait_started("plain/1")
    renewed = next(iter(site.client.scan_iter(match=site.keys.unique(b"renew:") + b"*")))
    plain = next(iter(site.client.scan_iter(match=site.keys.unique(b"unique:") + b"*")))

    site.client.delete(renewed, plain)

    wait_until(lambda: site.client.exists(renewed))
    gate.open()
    site.assert_laws()
    assert site.stats()["locks_lost"] == 1
    wait_until(lambda: len(site.log_lines("1 locks were no longer")) == 1)  # told once the server's answer is back


def test_c33_a_foreign_script_that_blocks_the_server_costs_no_job(own_site: Site, full: bool) -> None:
    """The server answers BUSY until that script ends."""
    site, seconds = own_site, 6 if full else 1.5
    site.client.config_set("busy-reply-threshold", 500)
    site.pair()
    labels = site.enqueue_many(site.tasks.work, [f"job-{number}" for number in range(50)], seconds=0.1, failures=1)
    gate = site.gate()
    site.enqueue(site.tasks.renew, "renewed/1", gate=str(gate))
    site.wait_started("renewed/1")
    foreign = threading.Thread(target=_block, args=(site.server, seconds))
    foreign.start()
    refused = site.server.client()
    wait_until(lambda: _is_busy(refused))
    if full:
        time.sleep(3)  # a producer's call is patient for five seconds

    site.enqueue(site.tasks.work, "while-busy")  # waits for the server
    with FastQ(site.server.url, namespace=site.namespace) as newcomer:  # which has to connect first
        newcomer.enqueue("work", label="connected-while-busy")
    site.accepted.add("connected-while-busy")

    foreign.join()
    begun = time.monotonic()
    gate.open()
    site.wait_ended(*labels, "while-busy", timeout=5 * SLOW)
    print(f"all have run {time.monotonic() - begun:.2f} s after the server was free")
    # Everybody was silent: nobody is taken for dead, and nothing runs twice.
    reading = site.assert_laws(may_repeat={"renewed/1"})  # cancelled in doubt whether its lock is still its own
    assert all(reading.starts[label] == 2 for label in labels)


def _block(server: Server, seconds: float) -> None:
    client = redis.Redis.from_url(server.url, socket_timeout=None)
    script = "local t = redis.call('TIME') repeat local n = redis.call('TIME') until n[1] - t[1] > tonumber(ARGV[1]) return 1"
    client.eval(script, 0, seconds)
    client.close()


def _is_busy(client: redis.Redis) -> bool:
    try:
        client.ping()
    except redis.ResponseError as error:
        return str(error).startswith("BUSY")
    return False


@pytest.mark.cases
def test_c33_our_own_calls_never_hold_the_server_for_long(make_site: Callable[..., Site], own_server: Server) -> None:
    """Counting, listing, replaying, purging and deleting, with hundreds of thousands of jobs there."""
    site = make_site(own_server)
    worker = site.worker()
    site.tasks.work.using(retries=0).enqueue_many(({"label": f"dead-{n}", "failures": 1} for n in range(20_000)), handles=False)
    queue = site.app.queue()
    wait_until(lambda: queue.dead.count() == 20_000, timeout=100)
    worker.kill()
    site.tasks.work.enqueue_many((("waiting",) for _ in range(200_000)), handles=False)
    site.tasks.work.using(delay=3600).enqueue_many((("later",) for _ in range(50_000)), handles=False)
    site.client.config_set("slowlog-log-slower-than", 100_000)
    site.client.slowlog_reset()
    waits: list[float] = []

    with every(0.01, lambda: waits.append(_ping(site.client))):
        queue.counts()
        queue.dead.list(limit=1000)
        assert queue.dead.replay_all().replayed == 20_000
        assert queue.purge() == 270_000
        queue.dead.delete_all()

    waits.sort()
    print(f"PING: p50 {waits[len(waits) // 2] * 1000:.1f} ms, max {waits[-1] * 1000:.1f} ms, {len(waits)} of them")
    assert site.client.slowlog_get() == []


def _ping(client: redis.Redis) -> float:
    begun = time.monotonic()
    client.ping()
    return time.monotonic() - begun
