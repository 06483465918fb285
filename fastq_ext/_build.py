"""What a build leaves in its extensions, so that a missing, a stale and a debug one can each be told apart.

Every extension carries a stamp: the kind of the build and a hash of the sources that it was made from. It is looked for
in the bytes of the file, so a stale extension is found out without being imported (its import may be what fails).

setup.py loads this file by its path, when nothing is compiled yet: it imports nothing of the package.
"""

from __future__ import annotations

import hashlib
import re
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
REBUILD = f"{sys.executable} -m pip install -e {FOLDER.parent}"

_STAMP = re.compile(rb"fastq-build:(?:release|debug):[0-9a-f]{64}")


def modules() -> list[str]:
    """The names of the extensions whose sources lie in this folder: all of them in a checkout, none once installed."""
    return sorted(path.stem for path in FOLDER.glob("*.pyx"))


def shared_sources() -> list[Path]:
    """The declarations and headers. They count for every extension: which of them uses which, the compiler knows."""
    return sorted([*FOLDER.glob("*.pxd"), *FOLDER.glob("*.h")])


def stamp(module: str, *, debug: bool = False) -> str:
    """The stamp that a build of `module` from the present sources carries."""
    digest = hashlib.sha256()
    for path in [FOLDER / f"{module}.pyx", *shared_sources()]:
        content = path.read_bytes()
        digest.update(b"%s %d\n" % (path.name.encode(), len(content)) + content)
    return f"fastq-build:{'debug' if debug else 'release'}:{digest.hexdigest()}"


def require_built() -> None:
    """Raise an ImportError of one line when this is a checkout and an extension is missing for the running Python."""
    missing = [module for module in modules() if module not in _binaries()]
    if missing:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise ImportError(
            f"fastq_ext is not compiled for Python {version} in {FOLDER.parent} ({', '.join(missing)} missing): run "
            f"`{REBUILD}`, or start Python with -P to use an installed fastq from within this folder"
        )


def check_fresh() -> None:
    """Stop the program with the command that rebuilds, when an extension is older than the sources beside it.

    For the beginning of tests and benchmarks: they must not judge code that is no longer there. Where no sources lie
    beside (an installed fastq), there is nothing to compare and nothing happens.

    Raises:
        SystemExit: with one line that names the stale extensions and the command.

    Example:
        >>> import fastq_ext
        >>> fastq_ext.check_fresh()
    """
    stamps = _stamps()
    stale = [module for module in modules() if stamps.get(module) not in (stamp(module), stamp(module, debug=True))]
    if stale:
        raise SystemExit(f"stale extensions: {', '.join(stale)} (their sources have changed): run `{REBUILD}`")


def is_debug() -> bool:
    """Whether an extension in use was built with FASTQ_DEBUG_BUILD=1 (checked, traced and slow)."""
    return any(text.startswith("fastq-build:debug:") for text in _stamps().values())


def _binaries() -> dict[str, Path]:
    """The extensions in this folder that the running Python would load, by module."""
    found: dict[str, Path] = {}
    for suffix in reversed(EXTENSION_SUFFIXES):  # the first suffix is the one that an import prefers
        for path in FOLDER.glob(f"*{suffix}"):
            module = path.name.removesuffix(suffix)
            if "." not in module:  # else it is another Python's: message.cpython-312-... ends with .so too
                found[module] = path
    return found


def _stamps() -> dict[str, str]:
    """The stamps found in these extensions, by module; one built by other means has none."""
    matches = {module: _STAMP.search(path.read_bytes()) for module, path in _binaries().items()}
    return {module: match[0].decode() for module, match in matches.items() if match}
