"""The commands for operators: what they show, what they change, and that they ask before anything is destroyed."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis as redis_py

from fastq import FastQ, Unique
from fastq.broker import requests
from fastq.keys import queue_keys
from tests.cli.conftest import Shop
from tests.support.bursts import burst
from tests.support.operate import Answer, operate

HOSTILE = "\x1b[2J\x1b]0;owned\x07\r\n\u202eevil\x9b31m[bold red]<script>\x00"
Run = Callable[..., list[Answer]]


@pytest.fixture
def app(url: str, namespace: str) -> Iterator[FastQ]:
    with FastQ(url, namespace=namespace) as app:
        yield app


@pytest.fixture
def run(url: str, namespace: str) -> Run:
    """Runs commands, each given as a line, on the test's namespace."""
    there = ["--url", url, "--namespace", namespace]
    return lambda *lines: operate(*([*line.split(), *there] if isinstance(line, str) else [*line, *there] for line in lines))


def failing(app: FastQ, text: str = "no such order") -> Any:
    @app.task(name="fail", retries=0)
    def fail(order: str) -> None:
        raise LookupError(text)

    return fail


# --- queues


def test_queues_are_shown_with_what_they_hold_and_how_they_keep_up(app: FastQ, run: Run) -> None:
    for n in range(3):
        app.using(queue="mail").enqueue("send", n)
    app.using(queue="mail", delay=60).enqueue("send", 9)
    failing(app).enqueue("o-1")
    burst(app, queues=["default"])

    tables, one, machine = run("queues", "queues mail", "queues --json")

    assert [cells[0].strip() for cells in tables.rows] == ["QUEUE", "default", "mail"]
    assert [cell.strip() for cell in one.rows[1]][:2] == ["mail", "3"]
    assert tables.rows[2][-1].strip() == "no worker"
    default, mail = machine.json["queues"]
    assert (mail["name"], mail["waiting"], mail["scheduled"], mail["workers"], mail["rates"]) == ("mail", 3, 1, 0, {})
    assert 0 <= mail["oldest_wait"] < 30
    assert (default["dead"], default["oldest_wait"], default["totals"]["failed"]) == (1, None, 1)
    assert [answer.code for answer in (tables, one, machine)] == [0, 0, 0]


def test_rates_are_what_has_been_added_since_a_tick_noted_the_counters(app: FastQ, run: Run, redis: redis_py.Redis) -> None:
    app.enqueue("t")
    keys = queue_keys(app.config.namespace, "default")
    seconds, _ = redis.time()
    redis.hset(keys.stats, mapping={"enqueued": 1000, "succeeded": 400})
    redis.hset(keys.stats + b":%d" % (seconds // 60 - 1), mapping={"at": (seconds - 100) * 1000, "enqueued": 500})

    [answer] = run("queues --json")

    rates = answer.json["queues"][0]["rates"]
    assert rates["enqueued"] == pytest.approx(5, rel=0.3)
    assert rates["succeeded"] == pytest.approx(4, rel=0.3)
    assert rates["failed"] == 0


def test_workers_are_shown_with_their_queues_and_what_they_have_in_hand(app: FastQ, run: Run, redis: redis_py.Redis) -> None:
    app.enqueue("t")
    for queue in ("default", "mail"):
        app.broker.call(requests.join(queue_keys(app.config.namespace, queue), b"host-1-ab"))
        app.broker.call(requests.note_queue(queue_keys(app.config.namespace, queue), 1))
    keys = queue_keys(app.config.namespace, "default")
    app.broker.call(requests.fetch(keys, b"host-1-ab", entries=1, suspects=False))
    redis.zadd(keys.consumers, {"gone": -1})

    table, machine = run("workers", "workers --json")

    gone, here = machine.json["workers"]
    assert (gone["name"], gone["fenced"]) == ("gone", True)
    assert (here["name"], here["queues"], here["entries"], here["fenced"]) == ("host-1-ab", ["default", "mail"], 1, False)
    assert here["silent_for"] < 30
    assert "taken for dead" in table.out


def test_queues_are_paused_and_resumed(app: FastQ, run: Run) -> None:
    app.enqueue("t")

    first, again = run("pause default", "pause default never")
    assert (first.out, first.code) == ("default: paused\n", 0)
    assert again.out == "default: was paused already\nnever: paused (no job was ever enqueued there)\n"
    assert app.queue().counts().paused

    resumed, machine = run("resume default", "resume default never --json")
    assert resumed.out == "default: resumed\n"
    assert machine.json == {"changed": {"default": False, "never": True}}
    assert not app.queue().counts().paused


# --- what destroys asks first


def test_nothing_is_destroyed_where_nobody_can_be_asked(app: FastQ, run: Run) -> None:
    app.using(unique=Unique(ttl=60), delay=60).enqueue("t", n=1)
    fail = failing(app)
    fail.enqueue("o")
    burst(app)
    [lock] = run("locks list --json")[0].json["locks"]

    answers = run("purge default", "dead delete --all --queue default", ["locks", "release", "t", lock["key"]])

    assert [answer.code for answer in answers] == [2, 2, 2]
    assert all("--yes" in answer.err and len(answer.err.splitlines()) == 1 for answer in answers)
    assert "1 scheduled" in answers[0].err
    counts = app.queue().counts()
    assert (counts.scheduled, counts.dead) == (1, 1)
    assert run("locks list --json")[0].json["locks"][0]["job_uid"] == lock["job_uid"]


@pytest.mark.parametrize(("said", "code", "left"), [("n", 1, 2), ("y", 0, 0)])
def test_on_a_terminal_it_asks_and_does_as_it_is_told(app: FastQ, url: str, said: str, code: int, left: int) -> None:
    app.enqueue("t", 1)
    app.enqueue("t", 2)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-P", "-m", "fastq.cli", "purge", "default", "--url", url, "--namespace", app.config.namespace]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as child:
        os.close(theirs)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(ours, 1000)
        os.write(ours, f"{said}\n".encode())
        assert child.wait(30) == code
    os.close(ours)

    assert b"2 waiting" in shown
    assert app.queue().counts().waiting == left


def test_a_purge_frees_what_it_deletes(app: FastQ, run: Run) -> None:
    for n in range(2):
        app.using(unique=Unique(ttl=60)).enqueue("t", n=n)

    [purged, machine] = run("purge default --yes", "purge default --yes --json")

    assert (purged.out, purged.code) == ("default: 2 jobs deleted\n", 0)
    assert machine.json == {"purged": {"default": 0}}
    assert run("locks list --json")[0].json == {"locks": [], "cursor": None}


# --- dead jobs


def test_dead_jobs_are_listed_by_pages_the_last_first(app: FastQ, run: Run) -> None:
    failing(app).enqueue_many((f"o-{n}",) for n in range(5))
    burst(app)

    page, machine, beyond, elsewhere = run(
        "dead list -n 2", "dead list -n 2 --offset 4 --json", "dead list --offset 9", "dead list -q mail"
    )

    assert len(page.rows) == 3
    assert page.rows[1][1].strip() == "fail"
    assert "LookupError: no such order" in page.out
    assert "1 to 2 of 5" in page.err
    assert "--offset 2" in page.err
    assert (machine.json["total"], machine.json["offset"], len(machine.json["dead"])) == (5, 4, 1)
    assert machine.json["dead"][0]["args"][0].startswith("o-")
    assert (beyond.out, beyond.code) == ("", 0)
    assert "other queues (--queue): default (5)" in elsewhere.err


def test_a_dead_job_is_shown_replayed_and_deleted_wherever_it_is(app: FastQ, run: Run) -> None:
    fail = failing(app)
    jobs = [fail.using(queue=queue).enqueue("o-1") for queue in ("default", "mail")]
    burst(app, queues=["default", "mail"])
    uid = jobs[1].uid

    shown, machine = run(f"dead show {uid}", f"dead show {uid} --json")
    assert "('o-1')" in shown.out
    assert "Traceback" in shown.out
    assert (machine.json["job"]["queue"], machine.json["job"]["error"]) == ("mail", "LookupError: no such order")

    replayed, again = run(f"dead replay {uid}", f"dead replay {uid} -q mail --json")
    assert (replayed.out, replayed.code) == ("1 replayed, 0 refused\n", 0)
    assert (again.code, again.json["refused"]) == (1, [{"job_uid": uid, "reason": "not dead"}])
    assert app.queue("mail").counts().waiting == 1

    deleted, nothing, gone = run(f"dead delete {jobs[0].uid} --yes", f"dead delete {jobs[0].uid} --yes", f"dead show {uid}")
    assert (deleted.out, deleted.code) == ("1 deleted\n", 0)
    assert (nothing.out, nothing.code) == ("0 deleted\n", 1)
    assert gone.code == 1
    assert app.queue().counts().dead == 0


# --- single jobs, schedules and locks


def test_scheduled_jobs_are_listed_the_next_first(app: FastQ, run: Run) -> None:
    later, sooner = (app.using(delay=delay, job_id=f"in-{delay}").enqueue("t") for delay in (900, 60))

    table, machine = run("scheduled list -n 1", "scheduled list --json")

    assert sooner.uid in table.out
    assert later.uid not in table.out
    assert "1 to 1 of 2" in table.err
    assert [job["uid"] for job in machine.json["scheduled"]] == [sooner.uid, later.uid]
    assert [job["job_id"] for job in machine.json["scheduled"]] == ["in-60", "in-900"]


def test_a_job_is_shown_and_cancelled_by_its_uid_or_its_id(app: FastQ, run: Run) -> None:
    one = app.using(delay=60, queue="mail").enqueue("send", 1, to="ada")
    two = app.using(delay=60, job_id="event:77", queue="mail").enqueue("send", 2)
    app.enqueue("other")

    shown, by_id, unknown = run(f"jobs show {one.uid}", "jobs show event:77 --json", "jobs show nobody")
    assert "(1, to='ada')" in shown.out
    assert (by_id.json["job"]["uid"], by_id.json["job"]["state"], by_id.json["job"]["args"]) == (two.uid, "scheduled", [2])
    assert (unknown.code, unknown.out) == (1, "")

    cancelled, missing = run(f"jobs cancel {one.uid} event:77 --json", "jobs cancel nobody")
    assert cancelled.json == {"jobs": {one.uid: "will not start", "event:77": "will not start"}}
    assert missing.code == 1
    assert app.queue("mail").counts().scheduled == 0


def test_locks_are_listed_in_pages_that_together_hold_all_of_them(app: FastQ, run: Run) -> None:
    for n in range(300):
        app.using(unique=Unique(ttl=60), queue="ab"[n % 2]).enqueue("shop:send", n=n)
    app.using(unique=Unique(ttl=60)).enqueue("other", n=1)

    found: set[str] = set()
    cursor = 0
    while cursor is not None:
        [answer] = run(f"locks list -n 100 -t shop:send --cursor {cursor} --json")
        found |= {lock["key"] for lock in answer.json["locks"]}
        assert {lock["task"] for lock in answer.json["locks"]} <= {"shop:send"}
        cursor = answer.json["cursor"]
    assert len(found) == 300

    [one] = run("locks list -q a -n 1000 --json")
    assert {lock["queue"] for lock in one.json["locks"]} == {"a"}
    assert len(one.json["locks"]) == 150


def test_a_lock_is_released_as_it_is_listed(app: FastQ, run: Run) -> None:
    call = app.using(unique=Unique(ttl=60))
    call.enqueue("shop:send", n=1)
    [lock] = run("locks list --json")[0].json["locks"]

    released, again = run(*[["locks", "release", lock["task"], lock["key"], "--yes"]] * 2)

    assert (released.out, released.code, again.code) == ("released\n", 0, 1)
    assert not call.enqueue("shop:send", n=1).duplicate


# --- what others wrote is shown harmless


def test_names_and_errors_of_others_do_nothing_to_a_terminal(app: FastQ, run: Run) -> None:
    fail = failing(app, HOSTILE)
    fail.using(unique=Unique(ttl=60, until="ttl", key=lambda order: HOSTILE)).enqueue(HOSTILE)
    burst(app)
    app.using(delay=60, job_id=HOSTILE).enqueue("t", HOSTILE)
    [dead] = app.queue().dead.list()

    lines = ["dead list", f"dead show {dead.uid}", "scheduled list", "locks list", f"jobs show {dead.uid}"]
    answers = run(*lines, *(f"{line} --json" for line in lines), ["jobs", "show", HOSTILE], ["pause", HOSTILE])

    for answer in answers:
        for text in (answer.out, answer.err):
            assert [c for c in text if not c.isprintable() and c != "\n"] == []
    for answer in answers[: len(lines)]:
        assert "\\u202e" in answer.out
        assert "[bold red]" in answer.out
    assert answers[len(lines)].json["dead"][0]["args"] == [HOSTILE]


def test_a_payload_that_json_cannot_hold_is_shown_all_the_same(shop: Shop) -> None:
    shop.write("odd", """
        import os
        from datetime import datetime, timezone
        from fastq import FastQ
        app = FastQ(namespace=os.environ["SHOP"])
        @app.task(retries=0)
        async def odd(raw: bytes, number: float, when: datetime) -> None:
            raise ValueError
    """)  # fmt: skip
    shop.do(
        "import odd, datetime\n"
        "odd.odd.enqueue(b'\\x9c\\xff', float('nan'), datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc))\n"
        "odd.app.worker(burst=True).run()"
    )

    table, machine = operate(["dead", "list", "odd"], ["dead", "list", "odd:app", "--json"], env=shop.env, cwd=shop.folder)

    assert "(b'\\x9c\\xff', nan, datetime" in table.out
    assert machine.json["dead"][0]["args"] == ["b'\\x9c\\xff'", "nan", "2026-01-02T00:00:00+00:00"]


# --- wrong use


def test_wrong_use_is_told_in_one_line_and_touches_nothing(run: Run) -> None:
    lines = {
        "pause": "expected QUEUE",
        "locks release only-a-task": "expected TASK KEY",
        "dead show no-uid": "is not the uid",
        "dead delete no-uid --yes": "is not the uid",
        "dead replay --all": "--all needs --queue",
        "dead delete --yes": "give the UIDs",
        "queues a/b": "is not a name",
        "locks list -q a/b": "is not a name",
    }
    for (line, told), answer in zip(lines.items(), run(*lines), strict=True):
        assert (answer.code, len(answer.err.splitlines()), answer.out) == (2, 1, ""), (line, answer)
        assert told in answer.err, line

    [nothing] = operate(["queues"])
    assert (nothing.code, "say which" in nothing.err) == (2, True)


def test_a_server_that_cannot_be_reached_is_a_failure_told_in_one_line() -> None:
    [answer] = operate(["queues", "--url", "redis://:secret@127.0.0.1:1/0"])

    assert (answer.code, len(answer.err.splitlines())) == (1, 1)
    assert "secret" not in answer.err
