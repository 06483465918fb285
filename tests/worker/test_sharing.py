"""Several workers, several queues: jobs go where a slot is free, when they are due, to those who know them."""

import signal
import time
from pathlib import Path

from tests.support import process
from tests.worker.conftest import Bench


def test_jobs_behind_a_long_one_go_to_a_worker_that_is_idle(bench: Bench, tmp_path: Path) -> None:
    """C60: prefetched jobs must not wait for a long one while another worker has nothing to do."""
    gate = tmp_path / "gate"
    short = [f"s{i}" for i in range(9)]
    bench.app.enqueue_many(
        [bench.task["wait_for"].prepare("long", str(gate)), *(bench.task["nap"].prepare(key, 0.1) for key in short)]
    )
    assert len(bench.state()["stream"]) == 1  # all of them in one frame
    bench.start(concurrency=1)
    bench.wait_started("long")

    bench.start(concurrency=1)
    began = time.monotonic()
    bench.wait_ended(*short)

    assert time.monotonic() - began < 3
    gate.touch()
    bench.wait_settled()
    assert bench.ledger.read().repeated() == {}


def test_tasks_that_a_worker_does_not_know_wait_for_one_that_does(bench: Bench, tmp_path: Path) -> None:
    """C45: during a deploy old workers get new tasks."""
    gate = tmp_path / "gate"
    keys = [f"j{i}" for i in range(20)]
    bench.task["nap"].enqueue_many([(key, 0) for key in keys])
    bench.task["single"].enqueue("unique", 0)
    old = bench.start(app={"without": "nap"}, concurrency=1)
    old.wait_line("task 'nap' is not known here", count=20)
    process.wait_until(lambda: len(bench.state().get("scheduled", {})) == 20)
    assert "unique" in bench.ledger.read().ends  # it goes on with what it knows
    bench.task["wait_for"].enqueue("busy", str(gate))  # or it would have its share of them again and again
    bench.wait_started("busy")

    bench.start()

    bench.wait_ended(*keys)
    gate.touch()
    bench.wait_settled()
    reading = bench.ledger.read()
    assert {run.attempt for run in reading.runs} == {1}
    assert reading.repeated() == {}
    assert (bench.stat("failed"), bench.stat("dead")) == (0, 0)


def test_an_idle_worker_starts_delayed_jobs_when_they_are_due(bench: Bench) -> None:
    bench.start()
    bench.task["note"].enqueue("before")  # connected, and its clock set
    bench.wait_ended("before")
    due: dict[str, float] = {}
    for i in range(40):
        delay = 0.3 + 0.025 * i
        due[f"j{i}"] = time.monotonic() + delay
        bench.task["note"].using(delay=delay).enqueue(f"j{i}")

    bench.wait_ended(*due)

    late = sorted(run.started / 1e9 - due[run.key] for run in bench.ledger.read().runs if run.key in due)
    print(f"late by p50 {late[20] * 1000:.1f} ms, max {late[-1] * 1000:.1f} ms")
    assert late[0] > -0.02  # the producer's clock is as good as its offset to the server's
    assert late[20] < 0.05
    assert late[-1] < 0.5  # p99 under 50 ms on a machine that does nothing else


def test_an_idle_worker_of_several_queues_starts_jobs_of_any_of_them_at_once(bench: Bench) -> None:
    bench.start(queues=["first", "second", "third"])
    times = {}
    for queue in ("third", "second", "first") * 3:
        key = f"{queue}-{len(times)}"
        times[key] = time.monotonic()
        bench.task["note"].using(queue=queue).enqueue(key)
        bench.wait_ended(key)

    late = [run.started / 1e9 - times[run.key] for run in bench.ledger.read().runs]
    assert sorted(late)[len(late) // 2] < 0.2  # a look once a second would take 0.5 in the mean


def test_a_queue_listed_first_comes_first(bench: Bench) -> None:
    for queue in ("low", "high"):
        bench.task["note"].using(queue=queue).enqueue_many([(f"{queue}{i}",) for i in range(10)])

    bench.burst(queues=["high", "low"], concurrency=1)

    order = [run.key for run in bench.ledger.read().runs]
    assert order == [f"high{i}" for i in range(10)] + [f"low{i}" for i in range(10)]


def test_queues_in_turn_let_nobody_starve(bench: Bench) -> None:
    bench.app.task(name="other", queue="other")(bench.task["note"].fn)
    for i in range(30):
        bench.task["note"].enqueue(f"flood{i}")
    bench.app.tasks["other"].enqueue("few")

    bench.burst(concurrency=1)

    order = [run.key for run in bench.ledger.read().runs]
    assert order.index("few") < 20


def test_jobs_that_have_to_ask_do_not_hold_up_another_queue(bench: Bench) -> None:
    """Queues in turn: one whose only job has to ask the server first must not take the turn of the next."""
    for queue in ("asks", "plain"):
        bench.app.task(name=queue, queue=queue, track=queue == "asks")(bench.task["note"].fn)
    for i in range(10):
        bench.app.tasks["asks"].enqueue(f"a{i}")
        bench.app.tasks["plain"].enqueue(f"p{i}")

    bench.burst(concurrency=1)

    assert bench.ledger.read().starts == {f"{kind}{i}": 1 for kind in "ap" for i in range(10)}


def test_two_workers_share_a_backlog_and_run_everything_once(bench: Bench) -> None:
    keys = [f"j{i}" for i in range(2000)]
    workers = [bench.start(concurrency=20) for _ in range(2)]

    bench.task["nap"].enqueue_many([(key, 0.002) for key in keys])
    bench.wait_ended(*keys, timeout=30)
    bench.wait_settled()
    for worker in workers:
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0

    reading = bench.ledger.read()
    assert reading.repeated() == {}
    assert {run.pid for run in reading.runs} == {worker.pid for worker in workers}
    state = bench.state()
    state.pop("lanes")
    state.pop("watch")
    assert state == {"stats": {"enqueued": 2000, "waiting": 0, "succeeded": 2000, "succeeded:nap": 2000}}
