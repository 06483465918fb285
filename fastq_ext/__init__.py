"""The compiled part of fastq: messages, canonical hashes and the runner of jobs. It imports nothing of fastq.

`DEBUG` tells whether this is a debug build (see docs/building.md); `check_fresh()` stops a program whose extensions are
older than the sources beside them.
"""

from fastq_ext._build import check_fresh, is_debug, require_built

__all__ = ["DEBUG", "check_fresh"]

require_built()

DEBUG: bool


def __getattr__(name: str) -> bool:
    # Found out when asked for: the answer lies in the extensions' files, which a mere import need not read.
    if name == "DEBUG":
        return is_debug()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
