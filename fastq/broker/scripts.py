"""The server-side scripts: read from `lua/`, their includes and constants put in, known by their sha."""

import enum
import functools
import hashlib
import importlib.resources
import re
from typing import NamedTuple

_INCLUDE = re.compile(r"^-- @include (\w+)$\n", re.MULTILINE)
_STATUS = re.compile(r"\bSTATUS\.(\w+)")


class Status(enum.IntEnum):
    """The first value of every script's answer, written `STATUS.OK` there."""

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
    """The script of `lua/<name>.lua`, each include put in once, where it is first asked for.

    A script makes the functions that it includes anew whenever it runs: those that few calls need stand behind the way out of
    the others.

    Raises:
        ValueError: an include asks for itself, by whatever way.
    """
    folder = importlib.resources.files("fastq.broker") / "lua"
    whole: dict[str, bool] = {}  # the includes asked for, and whether all of each has been put in

    def put_in(asked: re.Match[str]) -> str:
        included = asked[1]
        if included in whole:
            if not whole[included]:
                under_way = (one for one, done in whole.items() if not done)
                raise ValueError(f"the includes of {name}.lua go in a circle: {' -> '.join((*under_way, included))}")
            return ""
        whole[included] = False
        text = _INCLUDE.sub(put_in, (folder / "include" / f"{included}.lua").read_text("utf-8"))
        whole[included] = True
        return text

    text = _INCLUDE.sub(put_in, (folder / f"{name}.lua").read_text("utf-8"))
    source = _STATUS.sub(lambda named: str(Status[named[1]].value), text).encode()
    return Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest().encode())
