"""What is kept of an error.

Its class, its text and its traceback are the user's code, and nothing that they do may escape from here.
"""

from __future__ import annotations

import traceback

MAX_TEXT = 8192  # characters of an error and of its traceback that are kept
MAX_CAUSES = 5  # errors of a chain of causes that are shown


class UnencodableResult(TypeError):
    """What a task returned cannot be kept; `str()` says why."""


def describe(error: BaseException) -> str:
    """An error in a line; one whose own text cannot be had is told by its kind."""
    return f"{type(error).__qualname__}: {text_of(error)[:500]}".rstrip(": ").replace("\n", " ")


def text_of(error: BaseException) -> str:
    """The text of an error, trimmed."""
    try:
        text = str(error)[:MAX_TEXT]
    except BaseException:  # its __str__ is the user's: it may raise SystemExit
        return "(its text cannot be had)"
    return printable(text)


def traceback_of(error: BaseException) -> str:
    """The traceback of an error, or the one that it brought along from another process (`remote_traceback`), trimmed."""
    remote = getattr(error, "remote_traceback", None)
    if isinstance(remote, str):
        return remote
    try:
        shown = traceback.TracebackException.from_exception(_without_distant_causes(error), limit=-20, compact=True)
        text = "".join(line[:MAX_TEXT] for line in list(shown.format())[-60:])
    except BaseException:  # a __str__ that raises, RecursionError
        text = "".join(traceback.format_tb(error.__traceback__, limit=-20))
    return printable(text)[-MAX_TEXT:]


def printable(text: str) -> str:
    """A text that can be encoded."""
    return text.encode("utf-8", "backslashreplace").decode()


def _without_distant_causes(error: BaseException) -> BaseException:
    """The error, with its chain of causes cut: formatting thousands of them would hold the event loop for seconds."""
    last: BaseException | None = error
    for _ in range(MAX_CAUSES):
        if last is None:
            return error
        last = last.__cause__ or (None if last.__suppress_context__ else last.__context__)
    if last is not None:
        last.__cause__ = last.__context__ = None
    return error
