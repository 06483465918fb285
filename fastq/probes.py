"""A small HTTP server beside a fleet: /metrics for Prometheus, /healthz and /readyz for whoever restarts it."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from fastq.config import Config
from fastq.metrics import Boards, FleetCollector
from fastq.worker.board import is_written

_log = logging.getLogger("fastq.fleet")

PREFIX = "fastq-boards-"
SHARED_MEMORY = Path("/dev/shm")  # where there is one, boards are never written to a disk


@contextlib.contextmanager
def board_folder() -> Iterator[Path]:
    """A folder for the boards of a fleet, for as long as the block lasts. Removes those of fleets that were killed."""
    parent = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    for left in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # somebody else's
            if left.stat().st_mtime < time.time() - 60 and not is_written(left):  # a younger one may be locked in a moment
                shutil.rmtree(left)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


@contextlib.contextmanager
def served(config: Config, folder: Path, queues: Callable[[], Sequence[str]], *, host: str, port: int) -> Iterator[int]:
    """Serve the fleet whose boards are in `folder` for as long as the block lasts. Yields the port (0 takes a free one).

    Raises OSError when the address is in use.
    """
    boards = Boards(folder)
    registry = CollectorRegistry()
    registry.register(FleetCollector(config, boards, queues))
    server = _Server((host, port), _Handler)
    server.boards, server.registry = boards, registry
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="fastq-probes", daemon=True)
    thread.start()
    _log.info("metrics are at http://%s:%d/metrics", host, server.server_port)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    boards: Boards
    registry: CollectorRegistry


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10  # seconds for a request to come

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            encoder, kind = choose_encoder(self.headers.get("Accept", ""))
            self._answer(200, encoder(self.server.registry), kind)
        elif path == "/healthz":
            self._answer(200, b"alive\n")
        elif path == "/readyz":
            why = self.server.boards.unready()
            self._answer(503 if why else 200, f"{why or 'ready'}\n".encode())
        else:
            self._answer(404, b"there are /metrics, /healthz and /readyz\n")

    def _answer(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """A probe each second is not worth a line."""
