"""What every test can ask for: a real server, a namespace of its own, and the promise that nothing is left running."""

import compileall
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.append(str(Path(__file__).parents[1]))  # for tests.support; at the end, where it shadows no installed package

import fastq
from tests.support import process, servers
from tests.support.servers import Server

if TYPE_CHECKING:
    import redis as redis_py

OPTIONAL_MARKERS = {
    "cases": "field cases at full length",
    "soak": "minutes of random faults",
    "netns": "needs root and network namespaces",
    "peers": "installs and runs other task queues",
    "slow": "takes more than a few seconds",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--server", choices=servers.KINDS, help="the server to test on (default: $FASTQ_TEST_SERVER, or any)"
    )


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in OPTIONAL_MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}; only run when -m names it")
    config.addinivalue_line("filterwarnings", "error")
    # Tests fork on purpose, in a process that has threads (the proxy, readers of output).
    config.addinivalue_line("filterwarnings", "ignore:This process .* is multi-threaded:DeprecationWarning")
    process.adopt_orphans()
    if not hasattr(config, "workerinput"):
        # Hundreds of processes import it; where PYTHONDONTWRITEBYTECODE is set, each would compile it for itself.
        compileall.compile_dir(Path(fastq.__file__).parent, quiet=2)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    return min((os.cpu_count() or 1) + 2, 8)  # tests wait as much as they work


def pytest_report_header(config: pytest.Config) -> str:
    return f"server: {_chosen(config) or 'none found'}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    named = set(re.findall(r"\w+", config.option.markexpr))
    hidden = set(OPTIONAL_MARKERS) - named
    dropped = [item for item in items if hidden & {mark.name for mark in item.iter_markers()}]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in set(dropped)]


_left_behind: dict[int, str] = {}


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    process.close_all()
    _left_behind.update(process.left_behind())
    for pid in _left_behind:
        process.end(pid)
    if _left_behind and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _left_behind:
        terminalreporter.section("processes left behind (ended now)", red=True, bold=True)
        for pid, command in _left_behind.items():
            terminalreporter.line(f"{pid}  {command}")


def _chosen(config: pytest.Config) -> servers.Binary | None:
    kind = config.getoption("--server") or os.environ.get("FASTQ_TEST_SERVER")
    return servers.find(kind) if kind else servers.first_found()


@pytest.fixture(scope="session")
def server_kind(request: pytest.FixtureRequest) -> str:
    """Which of servers.KINDS this session runs on. Without a server tests are skipped; under CI they fail."""
    binary = _chosen(request.config)
    if binary is None:
        refuse = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        refuse("no such Redis or Valkey server on this machine")
    return binary.kind


@pytest.fixture(scope="session")
def server(server_kind: str) -> Iterator[Server]:
    """One server for the whole session: be kind to it, and keep to your namespace."""
    with Server(server_kind) as server:
        yield server


@pytest.fixture
def url(server: Server) -> str:
    return server.url


@pytest.fixture
def redis(server: Server) -> "Iterator[redis_py.Redis]":
    """A plain client (bytes in and out) on the session's server."""
    client = server.client()
    yield client
    client.close()


@pytest.fixture
def namespace(server: Server) -> Iterator[str]:
    """A namespace that no other test has; its keys are deleted afterwards."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield name
    client = server.client()
    keys = list(client.scan_iter(match=f"{name}:*", count=1000))
    if keys:
        client.unlink(*keys)
    client.close()


@pytest.fixture
def start_server(server_kind: str) -> Iterator[Callable[..., Server]]:
    """Starts private servers of the session's kind; takes the options of Server."""
    started: list[Server] = []

    def start(kind: str = server_kind, **options: object) -> Server:
        started.append(Server(kind, **options))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def own_server(start_server: Callable[..., Server]) -> Server:
    """A private server for a test that breaks it; every acknowledged write survives a kill (appendfsync always)."""
    return start_server(aof="always")
