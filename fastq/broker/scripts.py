"""The server-side scripts: read from `lua/`, their includes put in, known by their sha."""

import enum
import functools
import hashlib
import importlib.resources
import re
from typing import NamedTuple

_INCLUDE = re.compile(r"^-- @include (\w+)$\n", re.MULTILINE)


class Status(enum.IntEnum):
    """The first value of every script's answer; `lua/include/status.lua` holds the same table."""

    OK = 0
    FULL = 1
    FENCED = 2
    STALE = 3
    MISSING = 4
    CONFLICT = 5


class Script(NamedTuple):
    """A script as the server knows it."""

    name: str
    source: bytes
    sha: bytes


@functools.cache
def load(name: str) -> Script:
    """The script of `lua/<name>.lua`, each include in it once, before what needs it.

    Raises:
        ValueError: an include asks for itself, by whatever way.
    """
    folder = importlib.resources.files("fastq.broker") / "lua"
    done: list[str] = []
    parts: list[str] = []

    def put_in(included: str, path: tuple[str, ...]) -> None:
        if included in path:
            raise ValueError(f"the includes of {name}.lua go in a circle: {' -> '.join((*path, included))}")
        if included not in done:
            text = (folder / "include" / f"{included}.lua").read_text("utf-8")
            for needed in _INCLUDE.findall(text):
                put_in(needed, (*path, included))
            done.append(included)
            parts.append(_INCLUDE.sub("", text))

    text = (folder / f"{name}.lua").read_text("utf-8")
    for included in _INCLUDE.findall(text):
        put_in(included, ())
    # The first line is the shebang with the script's flags and has to stay first.
    shebang, rest = text.split("\n", 1)
    source = "\n".join([shebang, *parts, _INCLUDE.sub("", rest)]).encode()
    return Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest().encode())
