"""Errors that are hard to keep, to describe, to send or to survive, by name; each is made anew."""

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import NoReturn


class WantsArguments(Exception):
    """Cannot be made again from what it tells of itself."""

    def __init__(self, code: int, *, place: str) -> None:
        super().__init__()
        self.code, self.place = code, place

    def __str__(self) -> str:
        return f"code {self.code} at {self.place}"


class Silent(Exception):
    """Its text cannot be had."""

    def __str__(self) -> NoReturn:
        raise ValueError("no text")

    __repr__ = __str__


class Leaver(Exception):
    """Asking it for its text would end the process."""

    def __str__(self) -> NoReturn:
        raise SystemExit(9)

    __repr__ = __str__


class Endless(Exception):
    """Its text contains itself."""

    def __str__(self) -> str:
        return f"endless {self}"

    __repr__ = __str__


class Bare(BaseException):
    """No Exception."""


class Holder(Exception):
    """Holds what cannot be pickled."""

    def __init__(self) -> None:
        self.lock, self.socket = threading.Lock(), socket.socket()
        self.socket.close()
        super().__init__("holds", self.lock)


def _of_many_causes() -> BaseException:
    error: BaseException = ValueError("the first of many")
    for number in range(2000):
        cause, error = error, RuntimeError(f"number {number}")
        error.__cause__ = cause
    return error


def _group() -> BaseException:
    return ExceptionGroup("several", [ValueError("one"), ExceptionGroup("more", [OSError(2, "two")])])


KINDS: dict[str, Callable[[], BaseException]] = {
    "wants_arguments": lambda: WantsArguments(7, place="here"),
    "silent": Silent,
    "leaver": Leaver,
    "endless": Endless,
    "holder": Holder,
    "huge": lambda: ValueError("x" * 10_000_000),
    "surrogate": lambda: ValueError("half a \ud83d pair"),
    "many_causes": _of_many_causes,
    "bare": Bare,
    "exit": lambda: SystemExit(5),
    "interrupt": KeyboardInterrupt,
    "generator_exit": GeneratorExit,
    "cancelled": lambda: asyncio.CancelledError("of its own"),
    "stop": lambda: StopIteration("s"),
    "group": _group,
    "memory": MemoryError,
    "os": lambda: FileNotFoundError(2, "gone"),
    "value": lambda: ValueError("wrong"),
}
