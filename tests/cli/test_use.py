"""How the command line is used, and what it says when it is used wrongly: one line, exit code 2."""

import json
from collections.abc import Callable

import pytest

import fastq as package
from tests.cli.conftest import Shop
from tests.support.process import Child, python, script

Run = Callable[..., Child]


def said(child: Child) -> tuple[int, list[str]]:
    """The exit code and the lines on stderr."""
    with child:
        return child.wait(), child.stderr.splitlines()


def test_the_version_is_told(fastq: Run) -> None:
    with fastq("--version") as child:
        assert child.wait() == 0
        assert child.stdout == f"fastq {package.__version__}"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--help"], ["worker", "demo", "queues", "doctor", "Exit codes"]),
        (["worker", "--help"], ["MODULE[:APP]", "--processes", "--concurrency", "--queues", "--import", "--grace", "--burst"]),
        (["demo", "--help"], ["--jobs", "--processes", "--url"]),
    ],
)
def test_help_names_what_there_is(fastq: Run, arguments: list[str], named: list[str]) -> None:
    with fastq(*arguments) as child:
        assert child.wait() == 0
        assert [name for name in named if name not in child.stdout] == []
        assert "--child" not in child.stdout


def test_without_a_command_it_shows_its_help_and_says_that_this_is_wrong_use(fastq: Run) -> None:
    code, lines = said(fastq())

    assert code == 2
    assert lines[0].startswith("Usage: fastq")


def test_help_is_quick_because_nothing_is_imported_that_only_commands_need() -> None:
    code = """
from fastq.cli.main import run
run(["--help"])
print("heavy:", sorted({"asyncio", "redis", "rich", "msgspec", "uvloop", "fastq_ext.runner"} & set(sys.modules)))
"""
    with script(code) as child:
        child.wait_line(r"^heavy: \[\]$")


WRONG_USE = [
    (["wroker"], "Did you mean one of: 'worker', 'workers'?"),
    (["worker"], "MODULE"),
    (["worker", "shop", "--proceses", "2"], "Did you mean '--processes'?"),
    (["worker", "shop", "--processes", "0"], "0 is not in the range"),
    (["worker", "shop", "--concurrency", "many"], "'many'"),
    (["worker", "shop", "--log-format", "xml"], "'xml'"),
    (["worker", "shop", "--queues", "a=5,b"], "give all queues a weight"),
    (["worker", "shop", "--queues", "a=5,b=many"], "a weight is a number"),
    (["worker", "shop", "--queues", "a,,b"], "empty name"),
    (["worker", "shop", "--queues", "a/b"], "'a/b' is not a name"),
    (["worker", "nowhere"], "no module 'nowhere'"),
    (["worker", "shop.nowhere"], "no module 'shop.nowhere'"),
    (["worker", "shop.py"], "did you mean shop?"),
    (["worker", "./shop.py:app"], "did you mean shop?"),
    (["worker", "shop:queue"], "shop:queue is no FastQ; there is shop:app"),
    (["worker", "shop", "--import", "nowhere"], "no module 'nowhere'"),
    (["worker", "empty"], "no FastQ in empty"),
    (["worker", "two"], "two:one or two:other"),
    (["demo", "--jobs", "none"], "'none'"),
    (["demo", "--url", "http://localhost"], "'http' is unknown"),
]


def test_wrong_use_is_told_in_one_line(shop: Shop) -> None:
    shop.write("empty", "")
    shop.write("two", "from fastq import FastQ\none, other = FastQ(), FastQ()")
    # All in one process: to start one for each takes longer than all the rest.
    code = f"""
import contextlib, io, json
from fastq.cli.main import run, search_current_folder
search_current_folder()
for arguments in {[arguments for arguments, _ in WRONG_USE]!r}:
    with contextlib.redirect_stderr(io.StringIO()) as stderr:
        exit_code = run(arguments)
    print(json.dumps([exit_code, stderr.getvalue().splitlines()]))
"""
    with script(code, env=shop.env, cwd=shop.folder) as child:
        assert child.wait() == 0, child.stderr

    answers = [json.loads(line) for line in child.stdout.splitlines()]
    for (arguments, told), (exit_code, lines) in zip(WRONG_USE, answers, strict=True):
        assert (exit_code, len(lines)) == (2, 1), (arguments, lines)
        assert lines[0].startswith("fastq")
        assert told in lines[0]


def test_a_malformed_variable_is_wrong_use(shop: Shop) -> None:
    code, lines = said(shop.fastq("worker", "shop", "--burst", FASTQ_URL="localhost"))

    assert (code, len(lines)) == (2, 1)
    assert "scheme" in lines[0]


@pytest.mark.parametrize("fault", ["import module_that_nobody_has", "raise RuntimeError('a fault of its own')"])
def test_a_fault_within_a_module_is_shown_where_it_is(shop: Shop, fault: str) -> None:
    shop.write("faulty", fault)

    code, lines = said(shop.fastq("worker", "faulty"))

    assert code == 1
    assert any("faulty.py" in line for line in lines)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_server_that_cannot_be_reached_is_a_failure_told_in_one_line(shop: Shop, processes: str) -> None:
    url = "redis://:secret@127.0.0.1:1/0"  # nobody may listen on port 1

    code, lines = said(shop.fastq("worker", "shop", "--processes", processes, FASTQ_URL=url))

    assert (code, len(lines)) == (1, 1)
    assert "no connection to redis://127.0.0.1:1/0" in lines[0]
    assert "secret" not in lines[0]


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_refused_password_is_a_failure_told_in_one_line(shop: Shop, start_server: Run, processes: str) -> None:
    server = start_server(password="right")
    wrong = server.url.replace("right", "wrong")

    code, lines = said(shop.fastq("worker", "shop", "--processes", processes, FASTQ_URL=wrong))

    assert (code, len(lines)) == (1, 1)
    assert "password" in lines[0]
    assert "wrong@" not in lines[0]


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_worker_refuses_a_temporary_server_of_its_own(shop: Shop, processes: str) -> None:
    code, lines = said(shop.fastq("worker", "shop", "--processes", processes, FASTQ_URL="embedded://"))

    assert (code, len(lines)) == (1, 1)
    assert "embedded:///dir" in lines[0]


def test_the_installed_command_is_the_same() -> None:
    code = "from importlib.metadata import entry_points; print(entry_points(group='console_scripts')['fastq'].value)"
    with python("-c", code) as child:
        child.wait_line("^fastq.cli.main:main$")
