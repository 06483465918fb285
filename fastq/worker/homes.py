"""Where functions are found by another process."""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path
from typing import Any

import msgspec

from fastq.errors import ConfigError
from fastq.task import Task


class Home(msgspec.Struct, frozen=True, array_like=True):
    """Where a function is found. `module` "": the file that the program was started as."""

    module: str
    path: str


def home_of(task: Task[Any, Any]) -> Home:
    """Where another process finds the function of a task. Raises ConfigError when it would not."""
    module, path = task.fn.__module__, task.fn.__qualname__
    if module == "__main__":
        spec = sys.modules["__main__"].__spec__
        home, module_here = Home(spec.name if spec is not None else "", path), "__main__"
        found_there = bool(home.module) or bool(file_of_main())
    else:
        home, module_here, found_there = Home(module, path), module, True
    with contextlib.suppress(ImportError, AttributeError):
        found = find(Home(module_here, path))
        if found_there and (found is task or found is task.fn):
            return home
    raise ConfigError(
        f"task {task.name!r} has executor=\"process\", but another process could not find its function {path} in"
        f" {module_here}: define it at the top of a module, under its own name"
    )


def file_of_main() -> str:
    """The file that this program was started as; "" at a prompt and with -c."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    return str(Path(file).resolve()) if file and Path(file).exists() else ""


def find(home: Home) -> Any:
    """The task or function of this name. Raises ImportError, AttributeError."""
    found: Any = importlib.import_module(home.module) if home.module else sys.modules["__main__"]
    for name in home.path.split("."):
        found = getattr(found, name)
    return found
