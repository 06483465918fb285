"""Imports go down only (docs/architecture.md, "Layers"): read from the sources, wherever in a file they stand."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Lowest first. A name stands for the module and everything in it; the longest name that fits decides.
LAYERS = (
    ("fastq_ext",),
    ("fastq.job", "fastq.errors", "fastq.config", "fastq.keys", "fastq.retry", "fastq.logs"),
    ("fastq.codec",),
    ("fastq.unique", "fastq.options", "fastq.task", "fastq.current", "fastq.middleware", "fastq.lifespan"),
    ("fastq.broker", "fastq.embedded", "fastq.embedded_guard"),
    ("fastq.route", "fastq.bulk", "fastq.merger", "fastq.producer"),
    ("fastq.results", "fastq.locks", "fastq.dead", "fastq.queues", "fastq.inspect", "fastq.app"),
    ("fastq.worker",),
    ("fastq.worker.worker",),
    ("fastq.worker.rehearsal", "fastq.testing"),
    ("fastq",),  # the public names, gathered from below
    ("fastq.metrics", "fastq.probes", "fastq.telemetry"),
    ("fastq.fleet", "fastq.demo", "fastq.cli", "fastq.pytest_plugin", "fastq.__main__"),
)

# Who may look up all the same, and why.
EXCEPTIONS = {
    ("fastq.app", "fastq.worker.worker"): "app.worker(), in the function: a producer never loads the worker",
    ("fastq.app", "fastq.testing"): "app.testing(), in the function: only tests load the test kit",
}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {
    name_of(path): path
    for package in ("fastq", "fastq_ext")
    for suffix in ("pxd", "pyx", "py")
    for path in sorted((ROOT / package).rglob(f"*.{suffix}"))
}

# What only one package may import: the broker speaks to Redis, the codec knows the bytes, the worker drives the runner.
# The runner is also what a job sees of itself.
KEEPERS = {
    module: "fastq.codec" for module, path in SOURCES.items() if path.suffix == ".pyx" and module != "fastq_ext.runner"
} | {
    "redis": "fastq.broker",
    "hiredis": "fastq.broker",
    "fastq_ext.exchange": "fastq.broker",
    "fastq_ext.resp": "fastq.broker",
    "fastq_ext.holding": "fastq.worker",
    "fastq_ext.histogram": "fastq.worker",
}


def imported_by(source: str, package: str) -> Iterator[str]:
    """Every module that `source` imports, also inside functions, under TYPE_CHECKING and by importlib.

    `from a import b` gives `a.b`: whether b is a module is not to be seen, and a layer's name fits both.
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                origin = ".".join([*above, *([module] if module else [])])
                yield from (f"{origin}.{alias.name}" for alias in names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield name


@functools.cache
def imports_of(module: str) -> set[str]:
    path = SOURCES[module]
    if path.suffix == ".py":
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        return set(imported_by(path.read_text("utf-8"), package))
    lines = re.findall(r"^\s*(?:from\s+(\S+)\s+c?import|c?import\s+(\S+))", path.read_text("utf-8"), re.MULTILINE)
    return {of or plain for of, plain in lines}


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def layer_of(module: str) -> int:
    fitting = [(len(name), layer) for layer, names in enumerate(LAYERS) for name in names if within(module, name)]
    return max(fitting)[1]


def excepted(module: str, imported: str) -> tuple[str, str] | None:
    return next((pair for pair in EXCEPTIONS if within(module, pair[0]) and within(imported, pair[1])), None)


def upward(module: str) -> set[str]:
    ours = {name for name in imports_of(module) if within(name, "fastq") or within(name, "fastq_ext")}
    return {name for name in ours if layer_of(name) > layer_of(module)}


@pytest.mark.parametrize("module", SOURCES)
def test_a_module_imports_nothing_from_a_higher_layer(module):
    assert {name for name in upward(module) if not excepted(module, name)} == set()


@pytest.mark.parametrize("module", SOURCES)
def test_a_keeper_is_the_only_importer_of_what_it_keeps(module):
    trespasses = {
        name
        for name in imports_of(module)
        for kept, keeper in KEEPERS.items()
        if within(name, kept) and not within(module, keeper) and not within(module, "fastq_ext")
    }

    assert trespasses == set()


def test_no_two_modules_import_each_other_by_any_way_around():
    below = {module: {known(name) for name in imports_of(module) if not excepted(module, name)} for module in SOURCES}
    below = {module: {name for name in names if name} - {module} for module, names in below.items()}

    # Take away, over and over, what imports nothing that is left: only circles remain.
    while done := {module for module, names in below.items() if not names & below.keys()}:
        below = {module: names for module, names in below.items() if module not in done}

    assert below == {}


def known(imported: str) -> str | None:
    """The module of ours that an import means: `fastq.errors.FastQError` is `fastq.errors`."""
    while imported and imported not in SOURCES:
        imported = imported.rpartition(".")[0]
    return imported or None


@pytest.mark.parametrize("module", [module for module in SOURCES if within(module, "fastq")])
def test_every_module_has_its_place_in_the_layers(module):
    named = {name for names in LAYERS for name in names if name != "fastq"}

    assert module == "fastq" or any(within(module, name) for name in named)


@pytest.mark.parametrize(
    ("source", "imported"),
    [
        ("import fastq.app", "fastq.app"),
        ("from fastq.app import FastQ", "fastq.app.FastQ"),
        ("from fastq import app", "fastq.app"),
        ("from . import wire", "fastq.broker.wire"),
        ("from ..app import FastQ", "fastq.app.FastQ"),
        ("def f():\n    from fastq.app import FastQ", "fastq.app.FastQ"),
        ("if TYPE_CHECKING:\n    from fastq.app import FastQ", "fastq.app.FastQ"),
        ("import importlib\nimportlib.import_module('fastq.app')", "fastq.app"),
    ],
)
def test_an_import_is_seen_wherever_and_however_it_is_written(source, imported):
    assert imported in set(imported_by(source, "fastq.broker"))


def test_an_upward_import_would_be_caught():
    assert layer_of("fastq.worker.worker.Worker") > layer_of("fastq.worker.fetcher") > layer_of("fastq.app.FastQ")
    assert layer_of("fastq.app.FastQ") > layer_of("fastq.broker.requests") > layer_of("fastq.codec")
    assert layer_of("fastq.FastQ") > layer_of("fastq.app")


def test_every_exception_is_still_in_use():
    assert {excepted(module, name) for module in SOURCES for name in upward(module)} - {None} == set(EXCEPTIONS)
