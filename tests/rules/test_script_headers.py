"""A Lua script is a program with a contract: a header that says what it is for, what it takes and what it returns."""

import functools
import re
from itertools import takewhile
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "fastq" / "broker" / "lua"
SCRIPTS = {path.stem: path.read_text("utf-8") for path in sorted(FOLDER.glob("*.lua"))}
INCLUDES = {path.stem: path.read_text("utf-8") for path in sorted((FOLDER / "include").glob("*.lua"))}
ALL = {**SCRIPTS, **INCLUDES}

GIVEN = re.compile(r"\b(?:KEYS|ARGV)\b")
COMMENT_OR_STRING = re.compile(r"""--.*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")


def parts_of(script: str) -> tuple[str, list[str], list[str]]:
    """The first line, the header's lines without their dashes, and the statements (each with its indented lines)."""
    first, *lines = script.splitlines()
    header = list(takewhile(lambda line: line.startswith("--"), lines))
    statements = re.split(r"\n(?=\S)", code_of("\n".join(lines[len(header) :])))
    return first, [line.removeprefix("--").strip() for line in header], statements


@functools.cache
def call_of(include: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.:]){include}\(")


@functools.cache
def code_of(script: str) -> str:
    """A script without its comments and its strings."""
    return COMMENT_OR_STRING.sub(lambda match: "" if match[0].startswith("--") else "''", script)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_its_purpose_its_keys_its_arguments_and_what_it_returns(name):
    first, header, _ = parts_of(SCRIPTS[name])
    words = [line.split(maxsplit=1)[0] for line in header if line]

    assert first.startswith("#!lua")
    assert words[0] not in ("Moves:", "KEYS", "ARGV", "Returns", "@include"), "the purpose comes first"
    assert [word for word in words if word in ("KEYS", "ARGV", "Returns")] == ["KEYS", "ARGV", "Returns"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_binds_its_keys_and_arguments_first_and_mentions_them_no_more(name):
    _, _, statements = parts_of(SCRIPTS[name])
    binding = list(takewhile(lambda text: re.match(r"local (?!function)", text) and GIVEN.search(text), statements))

    assert any("KEYS" in statement for statement in binding)
    assert [statement for statement in statements[len(binding) :] if GIVEN.search(statement)] == []


@pytest.mark.parametrize("name", INCLUDES)
def test_an_include_says_its_purpose_and_is_one_local_of_its_own_name(name):
    lines = INCLUDES[name].splitlines()
    purpose = [line for line in lines if line.startswith("--") and not line.startswith("-- @include")]
    outermost = [line for line in lines if re.match(r"(?!--|end$)\S", line)]

    assert purpose
    assert len(outermost) == 1
    assert outermost[0].startswith(f"local function {name}(")


@pytest.mark.parametrize("name", INCLUDES)
def test_an_include_takes_everything_by_parameter(name):
    assert GIVEN.findall(code_of(INCLUDES[name])) == []


@pytest.mark.parametrize("name", INCLUDES)
def test_an_include_is_used(name):
    assert [other for other, text in ALL.items() if f"-- @include {name}\n" in text] != []


@pytest.mark.parametrize("name", ALL)
def test_a_script_includes_what_it_calls_and_nothing_else(name):
    """A missing include shows only when the line that calls it is reached: with luck in a test, else on a bad day."""
    called = {other for other in INCLUDES if call_of(other).search(code_of(ALL[name]))} - {name}

    assert called == set(re.findall(r"^-- @include (\w+)$", ALL[name], re.MULTILINE))


@pytest.mark.parametrize("name", ALL)
def test_an_include_stands_before_its_first_call(name):
    for other in re.findall(r"^-- @include (\w+)$", ALL[name], re.MULTILINE):
        before, _, _ = ALL[name].partition(f"-- @include {other}\n")

        assert not call_of(other).search(code_of(before)), other
