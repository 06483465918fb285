"""Where a demo takes place: a server, a namespace of its own, a folder; and that nothing of them is left."""
from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fastq.broker import inspection
from fastq.broker.broker import Broker
from fastq.config import Config
from fastq.demo import JOBS, LEDGER, NAMESPACE
from fastq.demo.plan import Plan
from fastq.embedded import VARIABLE, EmbeddedServer, open_embedded


@dataclass(frozen=True)
class Stage:
    """`server` is the demo's private one, None if it was given the URL of another."""

    plan: Plan
    broker: Broker
    folder: Path
    server: EmbeddedServer | None

    @property
    def namespace(self) -> str:
        """The namespace that all keys of the demo are in."""
        return self.broker.config.namespace

    @property
    def workers_url(self) -> str:
        """The URL for the workers, which keep a private server alive until they have ended."""
        return "embedded://" if self.server is not None else self.broker.config.url or ""

    def is_cleared(self) -> bool:
        """Whether the private server has ended and its folder is gone, or the namespace in a given one is empty."""
        if self.server is not None:
            socket = Path(self.server.url.removeprefix("unix://"))
            return not socket.exists() and not self.folder.exists()
        return not any(self.all_keys())

    def all_keys(self) -> Iterator[bytes]:
        """All keys of the namespace; some may come twice. Raises BrokerError."""
        cursor = 0
        while True:
            cursor, keys = self.broker.call(inspection.some_keys(self.namespace, cursor))
            yield from keys
            if cursor == 0:
                return

    def delete_keys(self) -> None:
        """Delete all keys of the namespace. Raises BrokerError."""
        keys = list(self.all_keys())
        for at in range(0, len(keys), inspection.KEYS_AT_ONCE):
            self.broker.call(inspection.delete_keys(keys[at : at + inspection.KEYS_AT_ONCE]))


@contextlib.contextmanager
def set_stage(plan: Plan, url: str | None) -> Iterator[Stage]:
    """Make all ready, and clear it away at the end. Raises BrokerError when there is no server to be had.

    The environment then tells this process and its children where they are: import `fastq.demo.tasks` within.
    """
    namespace = f"fastq-demo-{secrets.token_hex(4)}"
    with contextlib.ExitStack() as stack:
        server = None
        if url is None:
            os.environ.pop(VARIABLE, None)  # a server of our own, even within a program that has one
            server = open_embedded("embedded://")
            stack.callback(server.close)
            folder = server.folder  # goes with the server, even if this process is killed
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fastq-demo-")))
        broker = Broker(Config(server.url if server is not None else url, namespace))
        stack.callback(broker.close)
        os.environ |= {
            "FASTQ_URL": broker.config.url or "",
            NAMESPACE: namespace,
            LEDGER: str(folder / "ledger"),
            JOBS: str(plan.jobs),
        }
        stage = Stage(plan, broker, folder, server)
        if server is None:
            stack.callback(stage.delete_keys)
        yield stage
