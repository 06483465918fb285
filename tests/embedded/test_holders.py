"""Several programs share an embedded server, and are killed in every order."""

import os
import signal
from pathlib import Path

import pytest
import redis

from fastq.embedded import open_embedded
from fastq.embedded_guard import HOLDERS, could_lock
from tests.embedded.holding import Start, processes_of, processes_with, server_pid
from tests.support import process, servers


def test_it_lives_until_the_last_of_its_programs_is_gone(program: servers.Binary, url: str, hold: Start) -> None:
    first, second = hold(url), hold(url)
    server, guard = processes_of(first.server_url)
    assert second.server_url == first.server_url

    first.tell("close")
    assert second.tell("incr key") == "count 1"
    assert server_pid(second.server_url) == server
    second.kill()

    process.wait_gone(server)
    process.wait_gone(guard)


def test_nothing_is_left_when_all_are_killed_at_once(program: servers.Binary, url: str, hold: Start) -> None:
    holders = [hold(url) for _ in range(3)]
    server, guard = processes_of(holders[0].server_url)

    for holder in holders:
        os.kill(holder.pid, signal.SIGKILL)

    process.wait_gone(server)
    process.wait_gone(guard)
    assert not os.path.exists(holders[0].server_url.removeprefix("unix://"))


@pytest.mark.parametrize("moment", ["", "holders.lock", "guard.lock", "server.log", "server.lock", "appendonlydir"])
def test_a_program_killed_while_it_opens_leaves_nothing(url: str, hold: Start, tmp_path: Path, moment: str) -> None:
    holder = hold(None)
    holder.begin(f"open {url}")
    holder.child.wait_line("opening")
    process.wait_until(lambda: not moment or (tmp_path / "data" / moment).exists())

    holder.kill()

    process.wait_until(lambda: not processes_with(tmp_path))
    assert hold(url).tell("incr key") == "count 1"  # and nothing in the way of the next


def test_a_server_that_forgot_the_signal_to_end_while_it_started_is_ended(
    program: servers.Binary, url: str, hold: Start, tmp_path: Path
) -> None:
    server, starting, go = tmp_path / "bin" / f"{program.name}-server", tmp_path / "starting", tmp_path / "go"
    server.unlink()
    server.write_text(
        f"#!/bin/sh\n[ \"$1\" = --version ] && exec '{program.path}' --version\n"
        f"trap '' INT; : >'{starting}'; until [ -e '{go}' ]; do /bin/sleep 0.05; done; exec '{program.path}' \"$@\"\n"
    )
    server.chmod(0o755)
    holder = hold(None)
    holder.begin(f"open {url}")
    process.wait_until(starting.exists)
    holder.kill()
    process.wait_until(lambda: not could_lock(tmp_path / "data" / HOLDERS, shared=True))  # the guard has seen it

    go.touch()

    process.wait_until(lambda: not processes_with(tmp_path), timeout=10)  # the guard's patience is 30 s


def test_many_programs_that_open_at_once_share_one_server(url: str, hold: Start) -> None:
    holders = [hold(None) for _ in range(8)]

    for holder in holders:
        holder.begin(f"open {url}")
    for holder in holders:
        holder.opened(holder.answer())

    assert len({server_pid(holder.server_url) for holder in holders}) == 1
    assert sorted(int(holder.tell("incr key").split()[1]) for holder in holders) == list(range(1, 9))


def test_opening_while_the_last_holder_leaves_never_fails_and_loses_no_data(url: str, hold: Start) -> None:
    holders = [hold(None) for _ in range(3)]
    rounds = 8

    for _ in range(rounds):
        for command in (f"open {url}", "incr key", "close"):  # each at its own pace: opening meets closing
            for holder in holders:
                holder.begin(command)
    answers = [holder.answer() for _ in range(3 * rounds) for holder in holders]

    assert [answer for answer in answers if answer.startswith("refused")] == []
    counts = sorted(int(answer.split()[1]) for answer in answers if answer.startswith("count"))
    assert counts == list(range(1, 3 * rounds + 1))


def test_a_forked_child_shares_its_parents_hold(url: str, hold: Start) -> None:
    parent = hold(url)
    child = int(parent.tell("fork").split()[1])
    server, guard = processes_of(parent.server_url)

    parent.kill()
    assert server_pid(parent.server_url) == server
    os.kill(child, signal.SIGKILL)

    process.wait_gone(server)
    process.wait_gone(guard)


def test_a_program_that_a_holder_has_started_holds_nothing(url: str, hold: Start) -> None:
    holder = hold(url)
    started = int(holder.tell("exec").split()[1])
    server, guard = processes_of(holder.server_url)

    holder.kill()

    process.wait_gone(server)
    process.wait_gone(guard)
    assert process.alive(started)
    process.end(started)


def test_a_server_that_was_killed_is_started_again_with_its_data(
    program: servers.Binary, url: str, hold: Start
) -> None:
    holder = hold(url)
    holder.tell("incr key")
    server, guard = processes_of(holder.server_url)

    os.kill(server, signal.SIGKILL)
    process.wait_gone(server)
    again = open_embedded(url)

    assert holder.tell("incr key") == "count 2"
    assert again.url == holder.server_url
    assert processes_of(again.url)[1] == guard
    again.close()


@pytest.mark.skipif("sys.platform != 'linux'", reason="only Linux ends a process with its parent")
def test_the_server_ends_with_a_guard_that_was_killed(url: str, hold: Start) -> None:
    server, guard = processes_of(hold(url).server_url)

    os.kill(guard, signal.SIGKILL)

    process.wait_gone(server)
    open_embedded(url).close()  # clears away what the killed could not


def test_the_next_open_replaces_a_guard_that_was_killed(program: servers.Binary, url: str, hold: Start) -> None:
    holder = hold(url)
    holder.tell("incr key")
    server, guard = processes_of(holder.server_url)

    os.kill(guard, signal.SIGKILL)
    process.wait_gone(guard)
    assert holder.tell(f"open {url}").split()[1] == holder.server_url

    assert holder.tell("incr key") == "count 2"
    new_server, new_guard = processes_of(holder.server_url)
    assert not process.alive(server)
    holder.kill()
    process.wait_gone(new_server)
    process.wait_gone(new_guard)


def test_no_second_server_starts_on_data_that_the_first_still_has(url: str, hold: Start, tmp_path: Path) -> None:
    holder = hold(url)
    holder.tell("incr key")
    server, guard = processes_of(holder.server_url)
    os.kill(server, signal.SIGSTOP)  # it cannot end now
    process.wait_stopped(server)
    os.kill(guard, signal.SIGKILL)
    process.wait_gone(guard)

    holder.begin(f"open {url}")
    process.wait_until(lambda: "an earlier server still has the data" in (tmp_path / "data" / "server.log").read_text())
    assert process.alive(server)
    os.kill(server, signal.SIGCONT)

    holder.opened(holder.answer())
    assert not process.alive(server)
    assert holder.tell("incr key") == "count 2"


def test_a_sigterm_to_all_processes_leaves_the_server_to_its_holders(
    program: servers.Binary, url: str, hold: Start
) -> None:
    holder = hold(url)
    server, guard = processes_of(holder.server_url)

    os.kill(server, signal.SIGTERM)
    os.kill(guard, signal.SIGTERM)

    with redis.Redis.from_url(holder.server_url) as client:  # signals are looked at ten times a second
        uptime = client.info("server")["uptime_in_seconds"]
        process.wait_until(lambda: client.info("server")["uptime_in_seconds"] >= uptime + 2)
    assert holder.tell("incr key") == "count 1"
    assert processes_of(holder.server_url) == (server, guard)


def test_a_frozen_server_is_neither_replaced_nor_given_up(url: str, hold: Start) -> None:
    holder = hold(url)
    server, guard = processes_of(holder.server_url)

    os.kill(server, signal.SIGSTOP)
    process.wait_stopped(server)
    os.kill(server, signal.SIGCONT)

    assert holder.tell("incr key") == "count 1"
    assert processes_of(holder.server_url) == (server, guard)
