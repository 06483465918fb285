"""The .pyi beside each extension says what the extension has: no public name more, none less."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "fastq_ext"
MODULES = sorted(path.stem for path in FOLDER.glob("*.pyx"))
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def public(names) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def stub_of(module: str) -> ast.Module:
    path = FOLDER / f"{module}.pyi"
    return ast.parse(path.read_text("utf-8") if path.exists() else "")  # one without a stub must have no public names


def names_in(body: list[ast.stmt]) -> set[str]:
    """The names that a stub declares itself."""
    names = {node.name for node in body if isinstance(node, DEFINITIONS)}
    names |= {node.target.id for node in body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    return public(names)


def passed_on_in(body: list[ast.stmt]) -> set[str]:
    """The names that a stub imports for others: `from x import y as y`."""
    imports = [alias for node in body if isinstance(node, ast.ImportFrom) for alias in node.names]
    return {alias.name for alias in imports if alias.name == alias.asname}


def names_of(module: str) -> set[str]:
    """The names that an extension defines; what it imported for its own use is not among them."""
    loaded = importlib.import_module(f"fastq_ext.{module}")
    return public(
        name
        for name, value in vars(loaded).items()
        if not inspect.ismodule(value) and origin_of(value) in (loaded.__name__, "builtins")
    )


def origin_of(value: object) -> str:
    """The module that a value says it is from; a plain constant says nothing, but its type does."""
    return getattr(value, "__module__", None) or type(value).__module__


@pytest.mark.parametrize("module", MODULES)
def test_a_stub_names_what_the_extension_has(module):
    assert names_in(stub_of(module).body) == names_of(module)


@pytest.mark.parametrize("module", MODULES)
def test_an_extension_passes_on_what_its_stub_says(module):
    assert passed_on_in(stub_of(module).body) - set(vars(importlib.import_module(f"fastq_ext.{module}"))) == set()


@pytest.mark.parametrize(
    ("module", "stub"),
    [
        pytest.param(module, node, id=f"{module}.{node.name}")
        for module in MODULES
        for node in stub_of(module).body
        if isinstance(node, ast.ClassDef)
    ],
)
def test_a_stub_names_the_members_that_a_class_has(module, stub):
    compiled = getattr(importlib.import_module(f"fastq_ext.{module}"), stub.name)
    inherited = public(name for base in compiled.__mro__[1:] for name in vars(base))
    members = public(vars(compiled)) - inherited
    declared = names_in(stub.body) - inherited

    if compiled.__dictoffset__:  # not a cdef class: what __init__ sets is seen in the instances only
        declared -= {node.target.id for node in stub.body if isinstance(node, ast.AnnAssign)} - members
    assert declared == members


@pytest.mark.parametrize(
    ("module", "stub"),
    [
        pytest.param(module, node, id=f"{module}.{node.name}")
        for module in MODULES
        for node in stub_of(module).body
        if isinstance(node, ast.FunctionDef)
    ],
)
def test_a_stub_names_the_parameters_that_a_function_takes(module, stub):
    compiled = getattr(importlib.import_module(f"fastq_ext.{module}"), stub.name)
    declared = [*stub.args.posonlyargs, *stub.args.args, *stub.args.kwonlyargs]

    assert [argument.arg for argument in declared] == list(inspect.signature(compiled).parameters)
