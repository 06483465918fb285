"""Reload: new children whenever a file of the program changes, for development."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

from fastq.errors import ConfigError


def check_reload() -> None:
    """Raise ConfigError when there is nothing to watch files with."""
    if importlib.util.find_spec("watchfiles") is None:
        raise ConfigError("--reload needs watchfiles: pip install 'fastq-queue[reload]'")


async def watch(folder: Path, changed: Callable[[], None]) -> None:
    """Call `changed` whenever a Python file in this folder changes, until cancelled."""
    from watchfiles import PythonFilter, awatch

    async for _ in awatch(folder, watch_filter=PythonFilter()):
        changed()
