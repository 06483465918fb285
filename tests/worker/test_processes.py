"""Sync tasks in processes of their own: a job in one can be killed, and cannot take its worker with it."""

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastq import FastQ
from fastq.errors import ConfigError, JobFailed
from tests.support import errors, process, sync_tasks
from tests.support.process import Child
from tests.worker.conftest import Bench


@pytest.fixture
def app(bench: Bench) -> FastQ:
    return sync_tasks.build(bench.url, bench.namespace, executor="process")


def failure(job: Any) -> JobFailed:
    with pytest.raises(JobFailed) as caught:
        job.result(timeout=1)
    return caught.value


def where(bench: Bench, key: str) -> int:
    """The process in which a job ran last."""
    return [run.pid for run in bench.ledger.read().runs if run.key == key][-1]


# --- a job in its process


def test_a_job_runs_in_another_process_and_knows_what_it_is(bench: Bench, app: FastQ) -> None:
    job = app.tasks["tell"].using(job_id="event:7", timeout=30).enqueue("a")
    before = time.time()
    app.worker(burst=True).run()

    told = job.result(timeout=1)
    assert where(bench, "a") != os.getpid()
    assert 20 < told.pop("left") <= 30
    assert before - 5 < told.pop("enqueued") < time.time()
    assert told.pop("fence") > time.time_ns() // 2_000_000 << 22
    assert told == {
        "uid": job.uid, "task": "tell", "queue": "default", "attempt": 1, "job_id": "event:7", "cancelled": False, "lock": None,
        "main thread": True,
    }  # fmt: skip


def test_a_process_runs_one_job_after_another_and_there_are_as_many_as_cores(bench: Bench, app: FastQ) -> None:
    app.tasks["note"].enqueue_many([(f"j{i}",) for i in range(100)])
    app.worker(burst=True).run()

    assert bench.ledger.read().missing(f"j{i}" for i in range(100)) == set()
    assert 1 <= len({run.pid for run in bench.ledger.read().runs}) <= len(os.sched_getaffinity(0))


def test_a_result_comes_back_as_msgpack_has_it(app: FastQ) -> None:
    job = app.tasks["give"].enqueue("{'a': (1, 2.5, b'x', None), 'b': {3}}")
    app.worker(burst=True).run()

    assert job.result(timeout=1) == {"a": [1, 2.5, b"x", None], "b": [3]}


def test_a_result_that_cannot_be_encoded_is_the_end_of_its_job_alone(bench: Bench, app: FastQ) -> None:
    job = app.tasks["give"].enqueue("object()")
    app.tasks["note"].enqueue("a")
    app.worker(burst=True, concurrency=1).run()

    assert "the result cannot be encoded" in str(failure(job))
    assert bench.ledger.read().missing(["a"]) == set()


# --- errors


def test_c53_whatever_a_job_raises_in_its_process_is_told_in_bounded_words(bench: Bench, app: FastQ) -> None:
    jobs = {kind: app.tasks["fail"].enqueue(kind, kind) for kind in errors.KINDS}
    app.tasks["note"].enqueue_many([(f"j{i}",) for i in range(20)])
    app.worker(burst=True).run()

    for kind, job in jobs.items():
        error = failure(job)
        assert 0 < len(str(error)) < 65536, kind
        assert len(error.details["traceback"]) < 65536, kind
    assert bench.ledger.read().missing(f"j{i}" for i in range(20)) == set()


def test_an_error_is_known_by_its_name_its_text_and_its_traceback(app: FastQ) -> None:
    known, unmade = app.tasks["fail"].enqueue("a", "os"), app.tasks["fail"].enqueue("b", "wants_arguments")
    app.worker(burst=True).run()

    error = failure(known)
    assert (error.details["type"], error.error) == ("FileNotFoundError", "[Errno 2] gone")
    assert "raise errors.KINDS[kind]()" in error.details["traceback"]
    error = failure(unmade)
    assert (error.details["type"], error.error) == ("WantsArguments", "code 7 at here")


def test_retry_policies_see_the_class_of_an_error(bench: Bench, app: FastQ) -> None:
    app.tasks["picky"].enqueue("retried", "os")
    app.tasks["picky"].enqueue("not retried", "value")
    app.worker(burst=True).run()

    assert bench.ledger.read().starts == {"retried": 2, "not retried": 1}


def test_a_job_can_ask_for_another_attempt_or_end_without_error(bench: Bench, app: FastQ) -> None:
    job = app.tasks["again"].enqueue("a")
    app.worker(burst=True).run()

    assert bench.ledger.read().starts == {"a": 2}
    assert job.status() == "dropped"


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("SIGKILL", r"ProcessDied: the process died with signal 9 \(SIGKILL\)"),
        ("SIGSEGV", r"ProcessDied: the process died with signal 11 \(SIGSEGV\)"),
        ("exit", "ProcessDied: the process ended with exit code 3"),
    ],
)
def test_c50_a_process_that_dies_fails_its_attempt_and_nothing_else(bench: Bench, app: FastQ, how: str, told: str) -> None:
    lasting, passing = app.tasks["die"].enqueue("lasting", how), app.tasks["die"].enqueue("passing", how, times=1)
    app.tasks["note"].enqueue_many([(f"j{i}",) for i in range(20)])
    app.worker(burst=True).run()

    assert re.search(told, str(failure(lasting)))
    assert passing.status() == "succeeded"
    assert bench.ledger.read().starts == {"lasting": 2, "passing": 2} | {f"j{i}": 1 for i in range(20)}


# --- killed


def family_of(bench: Bench, key: str) -> list[int]:
    """The process of a job, and the program that it has started."""

    def pids() -> list[int]:
        found = [run.key.split()[1:] for run in bench.ledger.read().runs if run.key.startswith(f"{key} ")]
        return [int(pid) for pid in found[-1]] if found and bench.started(key) else []

    return process.wait_until(pids)


def test_a_job_out_of_time_is_killed_with_all_that_it_has_started(bench: Bench, app: FastQ) -> None:
    job = app.tasks["with_family"].using(timeout=1).enqueue("a", "")
    app.worker(burst=True).run()

    assert "TimeoutError: the attempt ran longer than 1 s" in str(failure(job))
    for pid in family_of(bench, "a"):
        process.wait_gone(pid, 1)


def test_a_job_that_is_cancelled_is_killed(bench: Bench, app: FastQ, start_sync: Callable[..., Child]) -> None:
    job = app.tasks["with_family"].enqueue("a", "")
    start_sync(executor="process", concurrency=1)
    pids = family_of(bench, "a")

    assert job.cancel() is False
    for pid in pids:
        process.wait_gone(pid, 3)
    process.wait_until(lambda: job.status() == "cancelled", 2)
    app.tasks["note"].enqueue("next")
    bench.wait_ended("next")  # another process took the place of the one that was killed


def test_processes_die_with_their_worker_even_when_it_is_killed(
    bench: Bench, app: FastQ, start_sync: Callable[..., Child]
) -> None:
    app.tasks["with_family"].enqueue("a", "")
    worker = start_sync(executor="process")
    pids = family_of(bench, "a")

    worker.kill()

    for pid in pids:
        process.wait_gone(pid, 3)


def test_idle_processes_end_with_their_worker(bench: Bench, app: FastQ, start_sync: Callable[..., Child]) -> None:
    app.tasks["note"].enqueue("a")
    worker = start_sync(executor="process")
    bench.wait_ended("a")
    pid = where(bench, "a")
    assert process.alive(pid)

    worker.send(signal.SIGTERM)

    assert worker.wait(5) == 0
    assert not process.alive(pid)


def test_a_job_in_a_process_is_told_that_its_worker_ends_and_is_handed_back(
    bench: Bench, app: FastQ, tmp_path: Path, start_sync: Callable[..., Child]
) -> None:
    app.tasks["listen"].enqueue("a", str(tmp_path / "never"))
    worker = start_sync(executor="process", grace=0.1)
    bench.wait_started("a")
    pid = where(bench, "a")

    worker.send(signal.SIGTERM)

    assert worker.wait(5) == 0
    assert not process.alive(pid)
    assert bench.started("a was told") == 1
    assert len(bench.state("front")["front"]) == 1
    assert bench.stat("failed") == 0


def test_signals_that_a_whole_group_gets_do_not_stop_a_job_in_its_process(
    bench: Bench, app: FastQ, tmp_path: Path, start_sync: Callable[..., Child]
) -> None:
    gate = tmp_path / "gate"
    job = app.tasks["wait_for"].enqueue("a", str(gate))
    worker = start_sync(executor="process")
    bench.wait_started("a")

    for pid in (where(bench, "a"), worker.pid):
        os.kill(pid, signal.SIGTERM)
    worker.wait_line("ends: it fetches no more")
    gate.touch()

    assert worker.wait(5) == 0
    assert job.status() == "succeeded"


# --- waiting for a process


def test_the_time_that_a_job_waits_for_a_process_is_not_its_own(app: FastQ, bench: Bench) -> None:
    task = app.tasks["steps"].using(timeout=2)
    task.enqueue_many([(f"j{i}", 0.5) for i in range(5 * len(os.sched_getaffinity(0)))])
    app.worker(burst=True).run()

    assert bench.stat("failed") == 0


def test_jobs_that_would_wait_for_a_process_go_to_a_worker_that_has_one(
    bench: Bench, app: FastQ, tmp_path: Path, start_sync: Callable[..., Child]
) -> None:
    gate = tmp_path / "gate"
    cores = len(os.sched_getaffinity(0))
    keys = [f"j{i}" for i in range(2 * cores)]
    app.tasks["wait_for"].enqueue_many([(key, str(gate)) for key in keys])
    start_sync(executor="process")
    process.wait_until(lambda: len(bench.ledger.read().runs) == cores)

    start_sync(executor="process")
    bench.wait_started(*keys)
    gate.touch()
    bench.wait_settled()

    assert bench.ledger.read().starts == dict.fromkeys(keys, 1)


# --- finding the function


def test_a_function_that_no_other_process_could_find_is_refused_when_the_worker_starts(bench: Bench) -> None:
    def local() -> None:
        pass

    bench.app.task(name="local", executor="process")(local)

    with pytest.raises(ConfigError, match=r"could not find its function .*<locals>\.local.*at the top of a module"):
        bench.burst()


PROGRAM = """
import os
import sys
sys.path.append({root!r})
from fastq import FastQ
from tests.support.ledger import Ledger

app = FastQ({url!r}, namespace={namespace!r}, lease=1)

class Wrong(Exception):
    pass

@app.task(executor="process", result_ttl=60, retries=0)
def work(key: str) -> int:
    with Ledger.here().run(key):
        if key == "wrong":
            raise Wrong("so wrong")
        return os.getpid()

{start}
"""


def program(bench: Bench, folder: Path, start: str) -> Path:
    path = folder / "program.py"
    path.write_text(PROGRAM.format(root=str(process.ROOT), url=bench.url, namespace=bench.namespace, start=start))
    return path


@pytest.mark.parametrize("as_module", [False, True], ids=["as a file", "as a module"])
def test_the_program_itself_may_have_the_tasks(bench: Bench, tmp_path: Path, as_module: bool) -> None:
    start = """
if __name__ == "__main__":
    good, wrong = work.enqueue("good"), work.enqueue("wrong")
    app.worker(burst=True).run()
    print("ran elsewhere:", good.result(timeout=1) != os.getpid())
    try:
        wrong.result(timeout=1)
    except Exception as error:
        print(error)
"""
    path = program(bench, tmp_path, start)
    # Not as process.python does it: a user's program has its folder on the path.
    command = ["-m", "program"] if as_module else [str(path)]
    with Child([sys.executable, *command], env=bench.ledger.environment, cwd=tmp_path) as child:
        assert child.wait() == 0, child.stderr

    assert "ran elsewhere: True" in child.stdout
    assert "is dead: Wrong: so wrong" in child.stdout


def test_what_a_job_in_a_process_logs_looks_like_its_workers_own(bench: Bench, tmp_path: Path) -> None:
    start = """
from fastq import logs

@app.task(executor="process")
def speak() -> None:
    import logging
    logging.getLogger("shop").info("hello")

if __name__ == "__main__":
    logs.set_up("json")
    speak.enqueue()
    app.worker(burst=True).run()
"""
    path = program(bench, tmp_path, start)
    with Child([sys.executable, str(path)], env=bench.ledger.environment, cwd=tmp_path) as child:
        assert child.wait() == 0, child.stderr

    (said,) = [event for event in map(json.loads, child.stderr.splitlines()) if event["logger"] == "shop"]
    assert (said["level"], said["message"]) == ("info", "hello")


def test_a_program_that_starts_its_worker_whenever_it_is_imported_is_told_so(bench: Bench, tmp_path: Path) -> None:
    path = program(bench, tmp_path, 'print(work.enqueue("a").uid)\napp.worker(burst=True).run()')

    with Child([sys.executable, str(path)], env=bench.ledger.environment, cwd=tmp_path) as child:
        assert child.wait() == 0, child.stderr

    assert 'under `if __name__ == "__main__":`' in child.stderr
    assert bench.stat("dead") == 1


def test_tasks_whose_module_cannot_be_imported_fail_with_the_reason(bench: Bench, tmp_path: Path) -> None:
    start = """
if __name__ == "__mp_main__":
    os._exit(7)
if __name__ == "__main__":
    job = work.enqueue("a")
    app.worker(burst=True).run()
    try:
        job.result(timeout=1)
    except Exception as error:
        print(error)
"""
    path = program(bench, tmp_path, start)
    with Child([sys.executable, str(path)], env=bench.ledger.environment, cwd=tmp_path) as child:
        assert child.wait() == 0, child.stderr

    assert "is dead: ProcessDied: the process ended with exit code 7" in child.stdout
    assert "a process for tasks could not be started" in child.stderr
