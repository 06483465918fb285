"""How long the server took no write: nobody can report the end of a job meanwhile."""

import threading
import time

import redis

from tests.support.servers import Server

EVERY = 0.05  # seconds
TELL = 0.3  # seconds without a write that are worth a note


class Pulse:
    """Writes to the server, directly, as long as the block runs. `silences`: CLOCK_MONOTONIC ns, (since, until)."""

    def __init__(self, server: Server) -> None:
        self._client = server.client(socket_timeout=0.5, socket_connect_timeout=0.5)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse")
        self.silences: list[tuple[int, int]] = []

    def __enter__(self) -> "Pulse":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def silent_ns(self, since: int, until: int) -> int:
        """How much of that time the server was silent."""
        return sum(max(0, min(ended, until) - max(began, since)) for began, ended in self.silences)

    def _run(self) -> None:
        heard = time.monotonic_ns()
        while not self._stop.wait(EVERY):
            try:
                self._client.set("pulse", heard)
            except redis.RedisError:
                continue
            now = time.monotonic_ns()
            if now - heard > TELL * 1e9:
                self.silences.append((heard, now))
            heard = now
