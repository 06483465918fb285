"""Finds the FastQ that a command is told of: `MODULE:APP`, or `MODULE` alone."""
from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fastq.app import FastQ


def find_app(target: str) -> FastQ:
    """The FastQ that a target names. Raises click.UsageError, and whatever the module's own code raises.

    >>> find_app("shop.tasks:app")  # doctest: +SKIP
    """
    name, colon, attribute = target.partition(":")
    module = import_module(name)
    if colon:
        return _named(module, attribute)
    return _only_one(module)


def import_module(name: str) -> ModuleType:
    """Import a module. Raises click.UsageError when there is none of that name, but not for faults within it."""
    if not _is_dotted(name) or name.endswith(".py"):
        meant = name.removesuffix(".py").strip("./").replace("/", ".")
        hint = f": did you mean {meant}?" if _is_dotted(meant) else ""
        raise click.UsageError(f"{name!r} is not the name of a module{hint}")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # One that the module itself misses is a fault within it, and shown as such.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise click.UsageError(
            f"there is no module {error.name!r}, neither in the current folder nor installed (in {sys.prefix})"
        ) from None


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _named(module: ModuleType, attribute: str) -> FastQ:
    from fastq.app import FastQ

    found: object = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if isinstance(found, FastQ):
        return found
    there = ", ".join(f"{module.__name__}:{name}" for name in _apps(module))
    hint = f"; there is {there}" if there else ""
    raise click.UsageError(f"{module.__name__}:{attribute} is no FastQ{hint}")


def _only_one(module: ModuleType) -> FastQ:
    apps = _apps(module)
    if not apps:
        raise click.UsageError(f"there is no FastQ in {module.__name__}: it needs a line such as app = FastQ()")
    if len({id(app) for app in apps.values()}) > 1:
        names = " or ".join(f"{module.__name__}:{name}" for name in apps)
        raise click.UsageError(f"there are several FastQs in {module.__name__}: say which, {names}")
    return next(iter(apps.values()))


def _apps(module: ModuleType) -> dict[str, FastQ]:
    from fastq.app import FastQ

    return {name: value for name, value in vars(module).items() if isinstance(value, FastQ)}
