"""Embedded servers, one kind of server program after the other, and programs that hold them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fastq import embedded
from fastq.embedded import VARIABLE
from tests.embedded.holding import Holder, Start
from tests.support import servers


@pytest.fixture(autouse=True)
def nothing_held(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No server is inherited, neither from around the tests nor from the test before, and none stays open."""
    monkeypatch.setenv(VARIABLE, "")
    yield
    for hold in list(embedded._holds.values()):
        for server in list(hold._users):
            server.close()


@pytest.fixture(params=servers.KINDS)
def program(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> servers.Binary:
    """The one server program that can be found on PATH, here and in child processes."""
    binary = servers.find(request.param)
    if binary is None:
        pytest.skip(f"no {request.param} on this machine")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / f"{binary.name}-server").symlink_to(binary.path)
    monkeypatch.setenv("PATH", str(folder))
    return binary


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"embedded://{tmp_path}/data"


@pytest.fixture
def hold() -> Iterator[Start]:
    """Starts holders; those that a test leaves are killed."""
    holders: list[Holder] = []

    def start(url: str | None, env: dict[str, str] | None = None) -> Holder:
        holders.append(Holder(url, env))
        return holders[-1]

    yield start
    for holder in holders:
        holder.child.close()
