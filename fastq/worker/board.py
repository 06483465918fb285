"""A board: named numbers that a process writes in a file of shared memory, where its fleet reads them, also after its death.

The file is a row of records: u32 size of the key, u32 number of cells, the key (a JSON list of strings, padded to 8 bytes),
and the cells (f64). It grows by chunks; a size of 0 means that there is no more in this chunk. The writer holds a lock on it for
as long as it lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import secrets
import struct
from pathlib import Path
from typing import TypeAlias

Key = tuple[str, ...]
Cells: TypeAlias = "memoryview[float]"

CHUNK = 65536
SUFFIX = ".board"
_SIZES = struct.Struct("=II")


class Board:
    """This process's board in a folder that it shares with others.

    >>> board = Board(folder)  # doctest: +SKIP
    >>> board.cells(("sent", "mail"))[0] += 1  # doctest: +SKIP
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"
        self._file = os.open(self.path.with_suffix(".new"), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self.path.with_suffix(".new").rename(self.path)  # whoever sees it finds it locked
        self._size = 0
        self._chunk = memoryview(b"")
        self._used = 0
        self._cells: dict[Key, Cells] = {}

    def cells(self, key: Key, count: int = 1) -> Cells:
        """The cells of this name; zeros at first."""
        cells = self._cells.get(key)
        if cells is None:
            cells = self._cells[key] = self._add(json.dumps(key).encode(), count)
        return cells

    def close(self) -> None:
        """Say that nothing more is written. What was stays to be read."""
        fcntl.flock(self._file, fcntl.LOCK_UN)  # closing it would not do that: each map has the file open too
        os.close(self._file)

    def _add(self, key: bytes, count: int) -> Cells:
        begin = _SIZES.size + _padded(len(key))
        need = begin + 8 * count
        if need > len(self._chunk) - self._used:
            self._grow(-(-need // CHUNK) * CHUNK)
        record = self._chunk[self._used : self._used + need]
        self._used += need
        record[_SIZES.size : _SIZES.size + len(key)] = key
        _SIZES.pack_into(record, 0, len(key), count)  # last: a reader may look at any time
        return record[begin:].cast("d")

    def _grow(self, size: int) -> None:
        os.ftruncate(self._file, self._size + size)
        self._chunk = memoryview(mmap.mmap(self._file, size, offset=self._size))
        self._size += size
        self._used = 0


def read(path: Path) -> dict[Key, list[float]]:
    """All numbers on a board. Raises OSError when it cannot be read."""
    data = path.read_bytes()
    found: dict[Key, list[float]] = {}
    at = 0
    while at + _SIZES.size <= len(data):
        size, count = _SIZES.unpack_from(data, at)
        if not size:
            at = (at // CHUNK + 1) * CHUNK
            continue
        key = data[at + _SIZES.size : at + _SIZES.size + size]
        at += _SIZES.size + _padded(size)
        found[tuple(json.loads(key))] = list(struct.unpack_from(f"={count}d", data, at))
        at += 8 * count
    return found


def is_written(path: Path) -> bool:
    """Whether the process whose board this is lives, or whose folder of boards. Raises OSError when there is none."""
    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def remove(path: Path) -> None:
    """Delete a board."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def _padded(size: int) -> int:
    return (size + 7) // 8 * 8
