"""What a job meets in a worker, and what becomes of the ways in which it can end."""

import asyncio
import contextvars
import itertools
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fastq import Backoff, Unique, current_job
from fastq.codec import Message
from fastq.keys import queue_keys
from tests.support.builders import frame, message
from tests.worker.conftest import Bench

PLACE = contextvars.ContextVar("place", default="nowhere")


def run_all(bench: Bench, function: Any, calls: list[tuple[Any, ...]], *, concurrency: int = 4, **options: Any) -> list[Any]:
    """Run jobs of a task made of `function`; what each call returned or raised, in the order in which they ended."""
    seen: list[Any] = []

    async def body(*args: Any) -> None:
        try:
            seen.append(await function(*args))
        except BaseException as error:
            seen.append(error)
            raise

    body.__name__ = body.__qualname__ = function.__name__
    task = bench.app.task(name="body", retries=0, **options)(body)
    task.enqueue_many(calls)
    bench.burst(concurrency=concurrency)
    return seen


# --- a job runs as in a task of its own


def test_context_variables_do_not_leak_from_job_to_job(bench: Bench) -> None:
    async def look(name: str) -> str:
        before = PLACE.get()
        PLACE.set(name)
        await asyncio.sleep(0)
        assert PLACE.get() == name
        return before

    assert run_all(bench, look, [(f"j{i}",) for i in range(50)], concurrency=2) == ["nowhere"] * 50


def test_a_variable_that_a_job_sets_and_sets_back_is_not_seen_by_the_next(bench: Bench) -> None:
    async def look(name: str) -> list[str]:
        before = PLACE.get()
        token = PLACE.set(name)
        inside = PLACE.get()
        PLACE.reset(token)
        return [before, inside, PLACE.get()]

    seen = run_all(bench, look, [(f"j{i}",) for i in range(20)], concurrency=1)
    assert seen == [["nowhere", f"j{i}", "nowhere"] for i in range(20)]


def in_a_task(look: Callable[[], None], later: asyncio.Event) -> Any:
    async def wait() -> None:
        await later.wait()
        look()

    return asyncio.create_task(wait())


def in_a_callback(look: Callable[[], None], later: asyncio.Event) -> Any:
    waiter = asyncio.ensure_future(later.wait(), loop=asyncio.get_running_loop())
    waiter.add_done_callback(lambda _: look())
    return waiter


def in_a_thread(look: Callable[[], None], later: asyncio.Event) -> Any:
    return asyncio.create_task(then(later, asyncio.to_thread(look)))


def in_a_copy(look: Callable[[], None], later: asyncio.Event) -> Any:
    copy = contextvars.copy_context()
    return asyncio.get_running_loop().create_task(then(later, run_in(copy, look)), context=contextvars.Context())


async def then(later: asyncio.Event, what: Awaitable[Any]) -> None:
    await later.wait()
    await what


async def run_in(context: contextvars.Context, look: Callable[[], None]) -> None:
    context.run(look)


@pytest.mark.parametrize("leave", [in_a_task, in_a_callback, in_a_thread, in_a_copy])
def test_what_a_job_leaves_behind_sees_the_job_for_ever_and_not_the_next_one(bench: Bench, leave: Any) -> None:
    jobs = 10
    seen: dict[int, str] = {}
    left: list[Any] = []
    later = asyncio.Event()

    async def body(number: int) -> str:
        uid = current_job().uid
        assert PLACE.get() == "nowhere"
        if number % 2 == 0:
            left.append(leave(lambda: seen.__setitem__(number, current_job().uid), later))
        if number % 4 == 0:
            PLACE.set("here")
        if number == jobs - 1:
            later.set()
            await asyncio.gather(*left)
            await asyncio.sleep(0)
        assert current_job().uid == uid
        return uid

    context = contextvars.copy_context()  # one with many variables, parts of which a changed one shares with its origin
    for variable in [contextvars.ContextVar(f"v{i}") for i in range(200)]:
        context.run(variable.set, 0)
    uids = context.run(run_all, bench, body, [(i,) for i in range(jobs)], concurrency=1)

    assert len(set(uids)) == jobs
    assert seen == {number: uids[number] for number in range(0, jobs, 2)}


def test_what_a_job_has_kept_of_itself_stays_as_it_was(bench: Bench) -> None:
    kept: list[Any] = []

    async def body(number: int) -> str:
        if number % 3 == 0:
            kept.append(current_job())
        if number % 3 == 1:
            await asyncio.sleep(0)
        return current_job().uid

    uids = run_all(bench, body, [(i,) for i in range(12)], concurrency=1)

    assert [job.uid for job in kept] == uids[::3]
    assert len({job.fence for job in kept}) == 4


def test_a_job_that_was_told_to_stop_leaves_the_next_untold(bench: Bench) -> None:
    async def body(first: bool) -> Any:
        if first:
            await asyncio.sleep(5)
        return current_job().cancelled, current_job().deadline is not None

    seen = run_all(bench, body, [(True,), (False,), (False,)], concurrency=1, timeout=0.1)

    assert isinstance(seen[0], asyncio.CancelledError)
    assert seen[1:] == [(False, True)] * 2


def test_timeouts_of_its_own_task_groups_and_the_current_task_work_in_a_job(bench: Bench) -> None:
    async def use(number: int) -> str:
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.sleep(5)
        async with asyncio.TaskGroup() as group:
            ones = [group.create_task(asyncio.sleep(0.001, number + i)) for i in range(3)]
        with pytest.raises(ExceptionGroup):
            await fail_together()
        assert asyncio.current_task() is task
        return str(sum(one.result() for one in ones))

    async def fail_together() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(5))
            group.create_task(fail_soon())

    async def fail_soon() -> None:
        await asyncio.sleep(0)
        raise ValueError

    assert sorted(run_all(bench, use, [(i,) for i in range(6)], concurrency=2), key=int) == ["3", "6", "9", "12", "15", "18"]


def test_a_cancellation_that_a_job_leaves_pending_does_not_hit_the_next(bench: Bench) -> None:
    async def maybe_cancel_itself(cancels: bool) -> str:
        if cancels:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()  # and returns before it could be delivered
        else:
            await asyncio.sleep(0)
        return "returned"

    calls = [(number % 2 == 0,) for number in range(10)]
    assert run_all(bench, maybe_cancel_itself, calls, concurrency=1) == ["returned"] * 10


def test_a_job_that_swallows_a_cancellation_does_not_pass_it_on(bench: Bench) -> None:
    async def swallow(first: bool) -> str:
        if first:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            try:
                await asyncio.sleep(5)
            except asyncio.CancelledError:
                return "swallowed"
        await asyncio.sleep(0.001)
        return "undisturbed"

    assert run_all(bench, swallow, [(True,), (False,), (False,)], concurrency=1) == ["swallowed", "undisturbed", "undisturbed"]


def test_jobs_run_at_once_as_many_as_there_are_slots(bench: Bench) -> None:
    running: set[int] = set()
    most: list[int] = []

    async def count(number: int) -> None:
        running.add(number)
        most.append(len(running))
        await asyncio.sleep(0.02)
        running.discard(number)

    run_all(bench, count, [(i,) for i in range(40)], concurrency=7)

    assert max(most) == 7


def test_the_current_job_tells_what_it_is_in_async_jobs_and_in_threads(bench: Bench) -> None:
    seen: dict[str, Any] = {}

    def look(where: str) -> None:
        job = current_job()
        seen[where] = (job.uid, job.task, job.attempt, job.queue)

    async def async_body() -> None:
        look("async")

    def thread_body() -> None:
        assert threading.current_thread() is not threading.main_thread()
        look("thread")

    first = bench.app.task(name="async_body")(async_body).enqueue()
    second = bench.app.task(name="thread_body")(thread_body).enqueue()
    bench.burst()

    assert seen == {
        "async": (first.uid, "async_body", 1, "default"),
        "thread": (second.uid, "thread_body", 1, "default"),
    }


def test_fences_grow_with_every_delivery(bench: Bench) -> None:
    fences: list[int] = []

    async def look(times: int) -> None:
        fences.append(current_job().fence)
        if current_job().attempt <= times:
            raise RuntimeError

    task = bench.app.task(name="look", retries=Backoff(retries=3, delay=0))(look)
    task.enqueue_many([(0,), (0,), (0,)])
    task.enqueue(2)
    bench.burst(concurrency=1)

    assert len(fences) == 6
    assert fences == sorted(set(fences))


def test_sync_jobs_run_side_by_side_in_threads(bench: Bench) -> None:
    together = threading.Barrier(4, timeout=10)

    def meet(number: int) -> None:
        together.wait()

    bench.app.task(name="meet", retries=0)(meet).enqueue_many([(i,) for i in range(4)])
    bench.burst(concurrency=4)

    assert (bench.stat("succeeded"), bench.stat("dead")) == (4, 0)


@pytest.mark.parametrize(
    "error",
    [StopIteration("s"), StopAsyncIteration("s"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("kind", ["async", "sync"])
def test_whatever_a_job_raises_is_a_failure_of_that_job_alone(bench: Bench, error: BaseException, kind: str) -> None:
    async def throw() -> None:
        raise error

    def throw_in_a_thread() -> None:
        raise error

    body: Any = throw if kind == "async" else throw_in_a_thread
    bench.app.task(name="throw", retries=0)(body).enqueue()
    bench.task["note"].enqueue("good")
    bench.burst(concurrency=1)

    assert bench.ledger.read().missing(["good"]) == set()
    (told,) = dead(bench)
    # Python itself lets no StopIteration out of a coroutine.
    assert told["type"] == ("RuntimeError" if isinstance(error, StopIteration) else type(error).__name__)


# --- ends


def dead(bench: Bench) -> list[dict[str, str]]:
    """The errors that dead jobs carry."""
    keys = queue_keys(bench.namespace, "default")
    bodies = bench.client.hgetall(keys.jobs)
    return [Message(raw).extras["error"] for uid, raw in bodies.items() if len(uid) == 16]  # type: ignore[misc]


def test_a_job_that_succeeds_leaves_nothing_but_counters(bench: Bench) -> None:
    bench.task["note"].enqueue_many([("a",), ("b",)])

    bench.burst()

    state = bench.state()
    state.pop("lanes")
    state.pop("watch", None)
    assert state == {"stats": {"enqueued": 2, "waiting": 0, "succeeded": 2, "succeeded:note": 2}}
    assert bench.ledger.read().ends == {"a": 1, "b": 1}


def test_a_job_that_fails_is_tried_again_and_goes_dead_past_its_last_attempt(bench: Bench) -> None:
    bench.task["fail"].enqueue("twice", 2)
    bench.task["fail"].enqueue("always", 99)

    bench.burst()

    assert bench.ledger.read().starts == {"twice": 3, "always": 4}
    (told,) = dead(bench)
    assert (told["type"], told["text"], told["why"]) == ("RuntimeError", "attempt 4 of always", "no attempts left")
    assert "in fail" in told["traceback"]
    state = bench.state("scheduled", "stream", "front", "dead", "stats")
    assert len(state.pop("dead")) == 1
    assert state.pop("stats").items() >= {"failed": 6, "succeeded": 1, "dead": 1, "dead:fail": 1}.items()
    assert state == {}


def test_retries_wait_as_long_as_the_policy_says(bench: Bench) -> None:
    times: list[float] = []

    async def note_time() -> None:
        times.append(time.monotonic())
        if len(times) < 3:
            raise RuntimeError

    bench.app.task(name="times", retries=Backoff(retries=3, delay=0.2, factor=2, jitter=0))(note_time).enqueue()
    bench.burst()

    waits = [after - before for before, after in itertools.pairwise(times)]
    assert [0.19 < waits[0] < 0.9, 0.39 < waits[1] < 1.1] == [True, True], waits


def test_a_job_can_ask_for_another_attempt_or_end_without_error(bench: Bench) -> None:
    bench.task["again"].enqueue("again", 0.0)
    bench.task["drop"].enqueue("drop")

    bench.burst()

    assert bench.ledger.read().starts == {"again": 2, "drop": 1}
    assert (bench.stat("dropped"), bench.stat("dead"), bench.stat("succeeded")) == (1, 0, 1)


def test_an_attempt_that_runs_too_long_is_cancelled(bench: Bench) -> None:
    bench.task["limited"].enqueue("a", 30)

    began = time.monotonic()
    bench.burst()

    assert time.monotonic() - began < 10
    (told,) = dead(bench)
    assert (told["type"], told["text"]) == ("TimeoutError", "the attempt ran longer than 0.2 s")
    assert bench.ledger.read().unfinished() == []  # its `finally` ran


def test_a_job_that_does_not_listen_loses_its_turn_and_its_slot_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.worker.deadlines.PATIENCE", 0.3)
    bench.task["stubborn"].enqueue("deaf", 1000)
    bench.task["note"].enqueue("next")

    began = time.monotonic()
    bench.burst(concurrency=1)

    assert bench.ledger.read().missing(["next"]) == set()
    assert [told["type"] for told in dead(bench)] == ["TimeoutError"]
    reading = bench.ledger.read()
    assert reading.unfinished() == []  # it was ended by force, its `finally` ran
    assert time.monotonic() - began < 15


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (message("a", task="nap", args=["only the key"]), "missing"),
        (message("a", task="nap", args=["key", "not a number"]), "seconds"),
        (message("a", task="nap", args=["key", 1, "too many"]), "many"),
        (message("a", task="nap")[:-1] + b"\xc1", "damaged|payload"),
    ],
    ids=["too few", "a wrong type", "too many", "damaged"],
)
def test_a_payload_that_does_not_fit_goes_dead_with_its_reason(bench: Bench, payload: bytes, why: str) -> None:
    bench.client.xadd(queue_keys(bench.namespace, "default").stream, {b"f": payload})
    bench.task["note"].enqueue("good")

    bench.burst()

    (told,) = dead(bench)
    assert told["type"] == "PayloadError"
    assert any(word in told["text"] for word in why.split("|")), told
    assert bench.ledger.read().missing(["good"]) == set()


@pytest.mark.parametrize(
    ("extras", "runs"),
    [(b"\xc1", False), (b"\x93\x01\x02\x03", False), (b"\x81\xa7timeout\xa1x", False), (b"\x81\xa7timeout\x05", True)],
    ids=["no msgpack", "no map", "a timeout that is no number", "sound"],
)
def test_extras_that_cannot_be_read_end_the_job_and_nothing_else(bench: Bench, extras: bytes, runs: bool) -> None:
    bad = message("bad", task="note", extras=extras)
    bench.client.xadd(queue_keys(bench.namespace, "default").stream, {b"f": bad + message("good", task="note")})

    bench.burst(concurrency=1)

    assert bench.ledger.read().starts == ({"bad": 1, "good": 1} if runs else {"good": 1})
    assert list(bench.state().get("dead", {})) == ([] if runs else ["bad"])


def test_a_corrupt_end_of_a_frame_goes_dead_once_and_the_rest_runs(bench: Bench) -> None:
    raw = message("a", task="note") + message("b", task="note") + b"corrupt" * 20_000
    bench.client.xadd(queue_keys(bench.namespace, "default").stream, {b"f": raw})
    bench.client.xadd(queue_keys(bench.namespace, "default").stream, {b"f": b""})

    bench.burst()

    assert bench.ledger.read().ends == {"a": 1, "b": 1}
    bodies = [value for uid, value in bench.client.hgetall(queue_keys(bench.namespace, "default").jobs).items() if len(uid) == 16]
    whole = next(body for body in bodies if b"corrupt" in body)
    assert Message(whole).task == "fastq:unreadable"
    assert 65_000 < len(whole) < 66_000
    assert bench.stat("dead") == len(bodies)
    assert bench.state("stream", "front", "pending") == {}


def test_entries_without_a_frame_are_settled(bench: Bench) -> None:
    bench.client.xadd(queue_keys(bench.namespace, "default").stream, {b"strange": b"field"})
    bench.client.xadd(queue_keys(bench.namespace, "default").stream, {b"f": frame(message("a", task="note"))})

    bench.burst()

    assert bench.ledger.read().ends == {"a": 1}
    assert bench.state("stream", "pending") == {}


def test_a_message_at_the_size_limit_survives_a_failed_attempt(bench: Bench) -> None:
    seen: list[int] = []

    async def fail_once(data: bytes) -> None:
        seen.append(len(data))
        if len(seen) == 1:
            raise RuntimeError("x" * 100_000)

    task = bench.app.task(name="large", retries=Backoff(retries=1, delay=0))(fail_once)
    size = (1 << 20) - 200
    task.enqueue(b"\0" * size)

    bench.burst()

    assert seen == [size, size]


# --- locks


@pytest.mark.parametrize("task", ["single", "at_start"])
def test_a_lock_is_released_when_its_job_ends(bench: Bench, task: str) -> None:
    bench.task[task].enqueue("x", 0.0)
    assert len(bench.state()["locks"]) == 1

    bench.burst()

    assert bench.state("locks") == {}
    assert bench.stat("locks_lost") == 0


def test_a_lock_that_another_job_owns_is_left_to_it(bench: Bench) -> None:
    bench.task["single"].enqueue("x", 0.0)
    (lock,) = bench.client.scan_iter(match=queue_keys(bench.namespace, "default").unique(b"") + b"*")
    bench.client.set(lock, b"successor......." + b"W", px=60_000)

    bench.burst()

    assert bench.client.get(lock) == b"successor......." + b"W"
    assert bench.client.pttl(lock) > 30_000
    assert bench.stat("locks_lost") == 1
    assert bench.ledger.read().ends == {"x": 1}


def test_a_lock_is_held_through_retries_and_released_at_the_end(bench: Bench) -> None:
    holders: list[int] = []

    async def look(key: str) -> None:
        holders.append(len(bench.state().get("locks", {})))
        if current_job().attempt < 3:
            raise RuntimeError

    bench.app.task(name="look", retries=Backoff(retries=3, delay=0), unique=Unique(ttl=60))(look).enqueue("x")
    bench.burst()

    assert holders == [1, 1, 1]
    assert bench.state("locks") == {}


def test_a_job_that_was_waited_for_begins_before_the_worker_asks_for_more(bench: Bench) -> None:
    reads: list[int] = []

    def calls() -> int:
        bench.client.ping()  # what was written before has been read by the time of the second call
        return int(bench.client.info("commandstats").get("cmdstat_xreadgroup", {}).get("calls", 0))

    def waits() -> bool:
        clients = bench.client.client_list()
        return any(client["cmd"] == "xreadgroup" and "b" in client["flags"] for client in clients)

    @bench.app.task(name="look")
    async def look() -> None:
        reads.append(calls())  # blocks the event loop: nothing is written meanwhile

    async def run() -> None:
        worker = bench.app.worker()
        running = asyncio.create_task(worker.arun())
        try:
            async with asyncio.timeout(15):
                for number in range(10):
                    while not await asyncio.to_thread(waits):
                        await asyncio.sleep(0.01)
                    reads.append(calls())
                    await asyncio.to_thread(look.enqueue)
                    while len(reads) < 2 * number + 2:
                        await asyncio.sleep(0.01)
        finally:
            worker.stop()
            await running

    asyncio.run(run())
    # The read that brought the job is counted at its begin by some servers and at its end by others; the next is three calls.
    assert max(after - before for before, after in zip(reads[::2], reads[1::2], strict=True)) <= 1
