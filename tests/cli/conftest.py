"""Programs of users', in folders of their own, and the command line that runs them."""

import os
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.ledger import Ledger
from tests.support.process import ROOT, Child, python

# `hold` runs until the file `go` is there, so that a test decides when a job ends.
TASKS = f"""
    import asyncio, os, sys, time
    from pathlib import Path
    from fastq import FastQ, current_job
    sys.path.append({str(ROOT)!r})
    from tests.support.ledger import Ledger

    app = FastQ(namespace=os.environ["SHOP"])

    @app.task(queue="mail")
    async def mail(number: int) -> None:
        with Ledger.here().run(f"mail {{number}}"):
            pass

    @app.task
    async def plain(number: int) -> None:
        with Ledger.here().run(f"plain {{number}}"):
            pass

    @app.task
    async def hold(number: int) -> None:
        with Ledger.here().run(f"hold {{number}}"):
            while not Path("go").exists():
                await asyncio.sleep(0.01)

    @app.task
    def sleep_in_thread(number: int) -> None:
        with Ledger.here().run(f"sleep {{number}}"):
            time.sleep(60)

    @app.task
    async def end_process(code: int) -> None:
        Ledger.here().start(f"end {{code}}")
        if not Path("go").exists():
            os._exit(code)
        Ledger.here().start(f"survived {{code}}")
"""


class Shop:
    """A folder with a program in it, `shop.py`, and the ledger of its jobs."""

    def __init__(self, folder: Path, url: str, namespace: str) -> None:
        self.folder = folder
        self.namespace = namespace
        self.ledger = Ledger(folder / "ledger")
        self.env = {"FASTQ_URL": url, "SHOP": namespace, **self.ledger.environment}
        self.write("shop", TASKS)

    def write(self, module: str, source: str) -> None:
        """Write a module into the folder."""
        (self.folder / f"{module}.py").write_text(textwrap.dedent(source))

    def fastq(self, *arguments: str, **env: str) -> Child:
        """Start the command line in the folder."""
        return python("-m", "fastq.cli", *arguments, env={**self.env, **env}, cwd=self.folder)

    def do(self, code: str) -> None:
        """Run code in a program that has imported the module `shop`."""
        with python("-c", f"import sys; sys.path.insert(0, '')\nimport shop\n{code}", env=self.env, cwd=self.folder) as child:
            assert child.wait() == 0, child.stderr

    def go(self) -> None:
        """Let jobs of `hold` end."""
        (self.folder / "go").touch()

    @property
    def begun(self) -> list[str]:
        """The jobs that have begun, in their order."""
        return [run.key for run in sorted(self.ledger.read().runs, key=lambda run: run.started)]


@pytest.fixture
def shop(tmp_path: Path, url: str, namespace: str) -> Shop:
    return Shop(tmp_path, url, namespace)


@pytest.fixture
def fastq(shop: Shop) -> Callable[..., Child]:
    return shop.fastq


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("FASTQ_") and name != "FASTQ_TEST_SERVER"]:
        monkeypatch.delenv(name)
