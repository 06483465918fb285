"""How values are put into words for a terminal. What came from outside can neither move its cursor nor hide in it."""
from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

DEEPEST = 20  # levels of a value that are shown
CUT = "…"


def escaped(text: str, most: int = 0) -> str:
    """A text on one line, with what is not printable (control codes, marks of direction, lone surrogates) as `\\x1b`.

    `most` 0: as long as it is; else cut to so many characters.

    >>> print(escaped("a\\x1b[2J\\nb"))
    a\\x1b[2J\\nb
    """
    if most and len(text) > most:
        text = text[: most - 1] + CUT
    return text if text.isprintable() else "".join(c if c.isprintable() else _code(c) for c in text)


def escaped_lines(text: str, most: int = 64_000) -> str:
    """The same for a text of several lines, which stay lines."""
    return "\n".join(escaped(line.expandtabs(4)) for line in text[:most].split("\n"))


def seconds(value: float | None) -> str:
    """A duration in the largest unit that fits.

    >>> seconds(0.25), seconds(90), seconds(7200), seconds(None)
    ('0.25 s', '1.5 min', '2 h', '-')
    """
    if value is None:
        return "-"
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"


def many(number: int, thing: str) -> str:
    """A number of things.

    >>> many(1, "job"), many(2000, "job")
    ('1 job', '2,000 jobs')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def moment(value: datetime | None) -> str:
    """A time in UTC, to the second."""
    return f"{value:%Y-%m-%d %H:%M:%S}" if value is not None else "-"


def call(args: tuple[Any, ...] | None, kwargs: dict[str, Any] | None, most: int) -> str:
    """Arguments as they would be written in a call."""
    if args is None or kwargs is None:
        return "(unreadable)"
    parts = [_repr(value) for value in args] + [f"{name}={_repr(value)}" for name, value in kwargs.items()]
    return escaped(f"({', '.join(parts)})", most)


def plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON can hold it; what it cannot hold is written as its repr."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if depth > DEEPEST:
        return CUT
    if isinstance(value, Mapping):
        return {str(name): plain(one, depth + 1) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one, depth + 1) for one in value]
    return _repr(value)


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # a class of the user's, or a value that is too deep
        return f"<{type(value).__name__} that cannot be shown>"


def _code(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
