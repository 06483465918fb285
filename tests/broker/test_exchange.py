"""What goes through a socket by compiled code: all of it, in order, with signals heard and time limits kept."""

import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fastq_ext.exchange import Exchange

Ends = tuple[Exchange, socket.socket, socket.socket]


@pytest.fixture(params=["looks", "sleeps"])
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    """An exchange, its socket, and the other end. It looks for an answer for longer than it takes here, or not at all."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Exchange(ours.fileno(), look_out=0.2 if request.param == "looks" else 0), ours, theirs


@pytest.fixture
def on_alarm() -> Iterator[list[Any]]:
    """What happens at SIGALRM: the first thing in the list is raised or called."""
    todo: list[Any] = []

    def handle(*_: object) -> None:
        if isinstance(todo[0], BaseException):
            raise todo[0]
        todo[0]()

    before = signal.signal(signal.SIGALRM, handle)
    yield todo
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def drain(end: socket.socket, into: bytearray) -> None:
    """Take whatever comes, up to the end."""
    while part := end.recv(65_536):
        into.extend(part)


def test_all_is_sent_however_large_it_is(ends: Ends) -> None:
    exchange, ours, theirs = ends
    data = os.urandom(3_000_000)  # far beyond what a socket keeps
    got = bytearray()
    reader = threading.Thread(target=drain, args=(theirs, got))
    reader.start()
    exchange.send(data)
    ours.shutdown(socket.SHUT_WR)
    reader.join(15)

    assert got == data


def test_what_comes_is_received_in_order_up_to_the_end(ends: Ends) -> None:
    exchange, _, theirs = ends
    data = os.urandom(100_000)
    sender = threading.Thread(target=lambda: (theirs.sendall(data), theirs.close()))
    sender.start()
    got = bytearray()
    while part := exchange.receive():
        got += part
    sender.join(15)

    assert got == data
    assert exchange.receive() == b""


def test_other_threads_run_while_one_waits_for_an_answer(ends: Ends) -> None:
    exchange, _, theirs = ends
    threading.Timer(0.05, theirs.sendall, [b"x"]).start()  # would never run if the wait kept the interpreter

    assert exchange.receive() == b"x"


def test_a_signal_that_raises_ends_the_wait(ends: Ends, on_alarm: list[Any]) -> None:
    exchange, _, theirs = ends
    on_alarm.append(KeyboardInterrupt())
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    with pytest.raises(KeyboardInterrupt):
        exchange.receive()
    theirs.sendall(b"later")

    assert exchange.receive() == b"later"


def test_any_other_signal_is_handled_and_the_wait_goes_on(ends: Ends, on_alarm: list[Any]) -> None:
    exchange, _, theirs = ends
    on_alarm.append(lambda: theirs.sendall(b"x"))  # nothing comes unless the handler runs during the wait
    signal.setitimer(signal.ITIMER_REAL, 0.05)

    assert exchange.receive() == b"x"


def test_a_signal_does_not_cut_what_is_sent(ends: Ends, on_alarm: list[Any]) -> None:
    exchange, ours, theirs = ends
    data, got = os.urandom(3_000_000), bytearray()
    reader = threading.Thread(target=drain, args=(theirs, got))
    on_alarm.append(reader.start)  # until then the send waits
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    exchange.send(data)
    ours.shutdown(socket.SHUT_WR)
    reader.join(15)

    assert got == data


def test_the_sockets_own_time_limits_hold() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            ours.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", 0, 20_000))
        exchange = Exchange(ours.fileno())
        with pytest.raises(BlockingIOError):
            exchange.receive()
        with pytest.raises(BlockingIOError):
            exchange.send(bytes(3_000_000))


def test_it_looks_for_a_moment_only_and_sleeps_then() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        exchange = Exchange(ours.fileno())
        used = []
        for _ in range(2):  # after the first, which it looks for in vain, it sleeps at once
            threading.Timer(0.5, theirs.sendall, [b"x"]).start()
            before = time.thread_time()
            assert exchange.receive() == b"x"
            used.append(time.thread_time() - before)

    assert max(used) < 0.25  # of half a second: it looks for less than a thousandth


def test_the_end_and_an_answer_that_nobody_waits_for_are_seen_at_once(ends: Ends) -> None:
    exchange, _, theirs = ends
    assert not exchange.ended()
    theirs.close()

    assert exchange.ended()


def test_what_goes_wrong_is_told() -> None:
    ours, theirs = socket.socketpair()
    exchange = Exchange(ours.fileno())
    theirs.close()
    with pytest.raises(BrokenPipeError):
        exchange.send(b"x")
    ours.close()
    gone = Exchange(os.sysconf("SC_OPEN_MAX"))  # no descriptor has this number
    with pytest.raises(OSError, match="Bad file descriptor"):
        gone.receive()
