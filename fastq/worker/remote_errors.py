"""Errors on their way from a process to its worker: described there, made again here, and never pickled."""

from __future__ import annotations

import sys
from typing import cast

import msgspec

from fastq.codec import encode_plain
from fastq.retry import Drop, Retry
from fastq.worker.failures import UnencodableResult, printable, text_of, traceback_of
from fastq.worker.homes import Home, find
from fastq.worker.process_words import NOTHING, Raised

MAX_ARGS = 16_384  # bytes of the arguments of an error that travel along with it


class RemoteError(Exception):
    """What a job raised in its process, when errors of that class cannot be made here."""


def describe_error(error: BaseException) -> Raised:
    """What the worker has to know of it."""
    kind = type(error)
    try:
        args = encode_plain(error.args)
    except BaseException:  # they are the user's
        args = b""
    raised = Raised(
        printable(kind.__module__),
        printable(kind.__qualname__),
        text_of(error),
        traceback_of(error),
        msgspec.Raw(args) if 0 < len(args) <= MAX_ARGS else NOTHING,
    )
    if isinstance(error, Retry):
        raised.signal, raised.delay = "retry", error.delay
    elif isinstance(error, Drop):
        raised.signal = "drop"
    return raised


def error_of(said: Raised) -> BaseException:
    """The error that a job raised in its process: of the same class if that can be had, with the same text and arguments."""
    if said.signal == "retry":
        return Retry(said.delay)
    if said.signal == "drop":
        return Drop(said.text)
    if said.signal == "unencodable":
        return UnencodableResult(said.text)
    try:
        error = _like(_class_named(said.module, said.name), said)
    except BaseException:  # classes are the user's
        error = RemoteError(f"{said.name}: {said.text}")
    error.remote_traceback = said.traceback  # type: ignore[attr-defined]
    return error


def _class_named(module: str, name: str) -> type[BaseException]:
    main = sys.modules["__main__"].__spec__
    is_main = module == "__mp_main__" or (main is not None and module == main.name)
    found = find(Home("__main__" if is_main else module, name))
    if not issubclass(found, BaseException):
        raise TypeError
    return cast(type[BaseException], found)


def _like(kind: type[BaseException], said: Raised) -> BaseException:
    """An instance without its constructor, which may want what did not travel; the text is as it was there."""
    args = msgspec.msgpack.decode(said.args)
    described = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__str__": lambda self: said.text}
    shown = type(kind.__name__, (kind,), described)
    return cast(BaseException, shown.__new__(shown, *(args if args is not None else (said.text,))))
