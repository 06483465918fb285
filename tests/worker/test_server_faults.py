"""A server that is away, empty, frozen or refuses: workers go on by themselves when it is back, and nobody is judged for it."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py

from fastq import ConfigError, FastQ
from fastq.keys import queue_keys
from tests.support import process
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.worker.conftest import Bench


@pytest.fixture
def own(own_server: Server, bench_on: Callable[..., Bench]) -> Bench:
    """A Bench on a private server whose writes survive a kill."""
    return bench_on(own_server.url, own_server.client())


def flush(client: redis_py.Redis, own: Bench) -> None:
    client.flushall()


def delete_the_stream(client: redis_py.Redis, own: Bench) -> None:
    client.delete(queue_keys(own.namespace, "default").stream)


def destroy_the_groups(client: redis_py.Redis, own: Bench) -> None:
    keys = queue_keys(own.namespace, "default")
    for stream in (keys.stream, keys.front, keys.suspects):
        client.xgroup_destroy(stream, "fastq")


@pytest.mark.parametrize("harm", [flush, delete_the_stream, destroy_the_groups])
def test_a_worker_makes_a_lost_group_again_and_goes_on(own: Bench, harm: Callable[[redis_py.Redis, Bench], None]) -> None:
    """C27: NOGROUP must neither end a worker nor make it spin."""
    worker = own.start()
    own.task["note"].enqueue("before")
    own.wait_ended("before")
    own.wait_settled()

    harm(own.client, own)
    keys = [f"j{i}" for i in range(10)]
    for key in keys:
        own.task["note"].enqueue(key)

    own.wait_ended(*keys, timeout=5)
    own.task["note"].using(delay=0.3).enqueue("delayed")
    own.wait_ended("delayed", timeout=5)
    own.wait_settled()
    assert worker.returncode is None
    assert own.ledger.read().repeated() == {}
    assert len([line for line in worker.stderr.splitlines() if line.startswith(("WARNING", "ERROR"))]) < 15


def test_jobs_in_hand_are_not_run_twice_by_their_worker_when_the_group_is_made_anew(own: Bench, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    keys = [f"j{i}" for i in range(5)]
    own.task["wait_for"].enqueue_many([(key, str(gate)) for key in keys])
    own.start()
    own.wait_started(*keys)

    destroy_the_groups(own.client, own)
    own.task["note"].enqueue("after")
    own.wait_ended("after")
    gate.touch()

    own.wait_settled()
    assert own.ledger.read().repeated() == {}


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_an_idle_worker_goes_on_after_a_restart_of_the_server(own: Bench, own_server: Server, how: str) -> None:
    """C30: 'connected' again, but consuming nothing."""
    worker = own.start()
    own.task["note"].enqueue("before")
    own.wait_ended("before")
    own.task["note"].using(delay=0.5).enqueue("delayed before")

    for _ in range(2):
        own_server.kill() if how == "kill" else own_server.stop()
        own_server.restart()
    for i in range(5):
        own.task["note"].enqueue(f"j{i}")
        own.task["note"].using(delay=0.3).enqueue(f"d{i}")

    own.wait_ended(*(f"{kind}{i}" for kind in "jd" for i in range(5)), "delayed before", timeout=10)
    own.wait_settled()
    assert worker.returncode is None
    assert own.ledger.read().repeated() == {}


def test_what_ran_while_the_server_was_away_is_settled_when_it_is_back(own: Bench, own_server: Server, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    own.task["wait_for"].enqueue_many([(f"j{i}", str(gate)) for i in range(20)])
    own.task["single_wait"].enqueue("unique", str(gate))
    own.start(app={"lease": 5})
    own.wait_started("unique", *(f"j{i}" for i in range(20)))

    own_server.kill()
    gate.touch()
    own.wait_ended("unique")
    own_server.restart()

    own.wait_settled()
    assert own.ledger.read().repeated() == {}
    assert own.stat("succeeded") == 21
    assert own.state("locks") == {}


def test_nobody_is_taken_for_dead_when_the_server_was_frozen_for_longer_than_the_lease(
    own: Bench, own_server: Server, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    own.task["wait_for"].enqueue_many([(f"j{i}", str(gate)) for i in range(4)])
    workers = [own.start(concurrency=2) for _ in range(2)]
    own.wait_started(*(f"j{i}" for i in range(4)))

    own_server.pause()
    time.sleep(2.5)  # more than twice the lease: the time itself is what is tested
    own_server.resume()
    # All have ticked for longer than a lease since.
    watch = queue_keys(own.namespace, "default").watch
    later = int(own.client.get(watch) or 0) + 2000
    process.wait_until(lambda: int(own.client.get(watch) or 0) > later)

    assert own.stat("fenced") == 0
    gate.touch()
    own.wait_settled()
    assert own.ledger.read().repeated() == {}
    assert own.stat("succeeded") == 4
    assert all("taken for dead" not in worker.stderr for worker in workers)


def test_a_server_that_loses_its_scripts_again_and_again_fails_nothing(own: Bench) -> None:
    """C29: NOSCRIPT."""
    own.start()
    keys = [f"j{i}" for i in range(60)]
    for i, key in enumerate(keys):
        own.client.script_flush()
        task = own.task[("note", "single", "fail")[i % 3]]
        arguments: tuple[Any, ...] = ((key,), (key, 0), (key, 1))[i % 3]
        task.using(delay=0.1 if i % 4 == 0 else 0).enqueue(*arguments)

    own.wait_ended(*keys)
    own.wait_settled()
    assert own.stat("succeeded") == 60
    assert (own.stat("dead"), own.state("locks")) == (0, {})


def test_a_backlog_drains_while_the_server_has_no_memory_left(own: Bench) -> None:
    """C31: at maxmemory, settling frees what enqueues are refused."""
    keys = [f"j{i}" for i in range(500)]
    own.task["note"].enqueue_many([(key,) for key in keys])
    own.task["fail"].enqueue("retried", 1)
    own.client.config_set("maxmemory", 1)

    worker = own.start()

    own.wait_ended(*keys)
    process.wait_until(lambda: own.started("retried") == 2)
    own.wait_settled()
    assert own.ledger.read().repeated() == {"retried": 2}
    assert worker.returncode is None


def test_dead_connections_that_nobody_closes_are_noticed_in_bounded_time(
    server: Server, redis: redis_py.Redis, bench: Bench, bench_on: Callable[..., Bench]
) -> None:
    """C37: a firewall that forgot the flows. By default a silent connection is given up after 15 s."""
    with Proxy(server) as proxy:
        worker = bench_on(proxy.url, redis).start(call_timeout=0.5)
        bench.task["note"].enqueue("before")
        bench.wait_ended("before")
        before = proxy.connections

        proxy.black_hole()
        for i in range(5):
            bench.task["note"].enqueue(f"j{i}")
        process.wait_until(lambda: proxy.connections >= before + 3)  # two of the worker, one of its heart
        proxy.flow()

        bench.wait_ended(*(f"j{i}" for i in range(5)))
        bench.wait_settled()
        assert worker.returncode is None


def test_settling_that_is_refused_for_a_time_is_done_later(own: Bench) -> None:
    """NOREPLICAS, MISCONF: the server refuses writes until somebody mends it."""
    own.start()
    own.task["nap"].enqueue_many([(f"j{i}", 0.3) for i in range(10)])
    own.wait_started(*(f"j{i}" for i in range(10)))

    own.client.config_set("min-replicas-to-write", 1)
    own.wait_ended(*(f"j{i}" for i in range(10)))
    time.sleep(0.5)  # it is refused, again and again
    own.client.config_set("min-replicas-to-write", 0)

    own.wait_settled()
    assert (own.stat("succeeded"), own.stat("dead")) == (10, 0)
    assert own.ledger.read().repeated() == {}


def test_a_key_that_something_else_has_written_loses_no_ends_once_it_is_gone(own: Bench) -> None:
    keys = queue_keys(own.namespace, "default")
    own.start()
    own.task["nap"].enqueue_many([(f"j{i}", 0.3) for i in range(10)])
    own.wait_started(*(f"j{i}" for i in range(10)))
    own.client.rename(keys.stats, f"{own.namespace}:kept")
    own.client.set(keys.stats, "something else")

    own.wait_ended(*(f"j{i}" for i in range(10)))
    time.sleep(0.5)  # settling fails, again and again
    own.client.rename(f"{own.namespace}:kept", keys.stats)

    own.wait_settled()
    process.wait_until(lambda: own.stat("succeeded") == 10)
    assert own.ledger.read().repeated() == {}


# --- what the process that beats for a worker is told


def test_a_password_from_a_provider_reaches_the_process_that_beats(bench_on: Callable[..., Bench]) -> None:
    with Server(password="secret") as server:
        provider = redis_py.UsernamePasswordCredentialProvider(password="secret")
        url = f"redis://127.0.0.1:{server.port}/0"
        bench = bench_on(url, server.client(), lease=1.0, redis_options={"credential_provider": provider})
        bench.task["note"].using(delay=2).enqueue("after the lease")  # a worker without a beat starts nothing then
        bench.task["nap"].enqueue("long", 2.5)

        bench.burst()

        assert bench.ledger.read().missing(["long", "after the lease"]) == set()


def test_an_option_that_cannot_be_handed_over_is_refused_when_the_worker_is_made(url: str, namespace: str) -> None:
    app = FastQ(url, namespace=namespace, redis_options={"credential_provider": lambda: ("default", "secret")})

    with pytest.raises(ConfigError, match=r"redis_options\['credential_provider'\] cannot be handed"):
        app.worker(burst=True).run()
