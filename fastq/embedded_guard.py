"""The guard of an embedded server: starts it, waits until nobody holds it any more, stops it, and ends.

A process of its own, started by the first program that opens the folder and detached from it. It runs by its path,
without site-packages (`python -I -S embedded_guard.py ...`), and so imports the standard library only: it lives as long
as the server does and should weigh little.

What is true is told by locks (flock) on three files of the folder; the kernel frees them however a process ends:

    holders.lock   shared by every program that uses the server; the guard waits for the exclusive lock
    guard.lock     held by the guard; it comes with it already, from the program that found it free
    server.lock    inherited by the server and what it forks, so that no second one writes to the same data
"""

import contextlib
import ctypes
import fcntl
import os
import signal
import socket
import stat
import sys
import time
from pathlib import Path

HOLDERS, GUARD, SERVER, LOG = "holders.lock", "guard.lock", "server.lock", "server.log"
STOP_TIMEOUT = 30.0  # seconds for an orderly end (an fsync of the append-only file), then SIGKILL
RESTART_DELAY = 0.5  # seconds, not to keep a machine in trouble busy
POLL = 0.03  # seconds between looks at the locks and at the server: it notices the end of the last holder that fast
PR_SET_PDEATHSIG = 1


def open_lock(path: Path, *, create: bool = True) -> int:
    """Open a lock file, made if need be. Forked children share the lock, programs that are started do not."""
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Take the lock if it is free at this moment."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def could_lock(path: Path, *, shared: bool = False) -> bool:
    """Whether the lock is free at this moment. FileNotFoundError when there is no such file."""
    fd = open_lock(path, create=False)
    try:
        free = try_lock(fd, shared=shared)
        if free:
            fcntl.flock(fd, fcntl.LOCK_UN)  # closing is not enough if another thread forks right now
        return free
    finally:
        os.close(fd)


def ask(address: Path, command: bytes) -> bytes:
    """The first bytes of the server's reply to an inline command, empty when nobody answers."""
    with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(OSError):
        connection.settimeout(1)
        connection.connect(str(address))
        connection.sendall(command + b"\r\n")
        return connection.recv(64)
    return b""


def answers(address: Path) -> bool:
    """Whether a server takes commands there (one that still loads its data does not)."""
    return ask(address, b"PING").startswith(b"+PONG")


class Guard:
    """The life of one server: `run()` returns when it has been stopped and all it needs no more is removed."""

    def __init__(self, folder: Path, address: Path, binary: str, *, temporary: bool) -> None:
        self._folder = folder
        self._address = address
        self._binary = binary
        self._temporary = temporary
        self._holders = open_lock(folder / HOLDERS)
        self._data = open_lock(folder / SERVER)
        self._pid = 0
        self._vain_starts = 0  # in a row: of servers that were never seen to answer

    def run(self) -> None:
        make_private_folder(self._address.parent)
        try:
            self._wait_for_data()
            self._start()
            while not self._deserted():
                # It died under its holders (out of memory, say). They reconnect; the append-only file has its data.
                _say("the server ended, starting it again")
                time.sleep(RESTART_DELAY)
                self._start()
            self._stop()
        finally:
            self._clean_up()

    def _wait_for_data(self) -> None:
        """Wait for the end of a server whose guard was killed."""
        deadline = time.monotonic() + STOP_TIMEOUT
        if try_lock(self._data):
            return
        _say("an earlier server still has the data, waiting for its end")
        while not try_lock(self._data):
            ask(self._address, b"SHUTDOWN NOSAVE")  # the append-only file is complete without a snapshot
            if time.monotonic() > deadline:
                sys.exit("guard: an earlier server still runs on this folder and does not stop")
            time.sleep(POLL)

    def _start(self) -> None:
        guard = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            with contextlib.suppress(BaseException):
                self._become_server(guard)
            os._exit(127)

    def _become_server(self, guard: int) -> None:
        # A service manager ends a program by SIGTERM to all of its processes. The workers among them still have jobs to
        # settle, so the server waits until they are gone, like its guard. SIGINT and SHUTDOWN end it in order.
        signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGTERM})
        if sys.platform == "linux":
            # Not to outlive a guard that was killed: nobody else would ever stop it. Elsewhere the next guard does.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)
            if os.getppid() != guard:
                return
        os.set_inheritable(self._data, True)
        os.execv(self._binary, [self._binary, *_directives(self._address)])

    def _deserted(self) -> bool:
        """Wait until the last holder has left (True) or the server has ended (False)."""
        ready = False
        while not self._ended():
            if try_lock(self._holders):
                return True
            ready = ready or answers(self._address)
            time.sleep(POLL)
        # One may have been killed before the first look at it; two in a row are a server that cannot start.
        self._vain_starts = 0 if ready else self._vain_starts + 1
        if self._vain_starts == 2:
            sys.exit(f"guard: {self._binary} did not start")
        return False

    def _stop(self) -> None:
        if self._ended():
            return
        os.kill(self._pid, signal.SIGINT)
        deadline = time.monotonic() + STOP_TIMEOUT
        while not self._ended():
            if time.monotonic() > deadline:
                os.kill(self._pid, signal.SIGKILL)
            elif answers(self._address):
                # The signal came while it was starting and was forgotten. A second one would end it without order.
                ask(self._address, b"SHUTDOWN NOSAVE")
            time.sleep(POLL)

    def _ended(self) -> bool:
        """Whether the server has ended; its pid is not used any more once it has."""
        if self._pid and os.waitpid(self._pid, os.WNOHANG)[0]:
            self._pid = 0
        return self._pid == 0

    def _clean_up(self) -> None:
        with contextlib.suppress(OSError):
            self._address.unlink(missing_ok=True)
            self._address.parent.rmdir()
        if self._temporary:
            import shutil  # heavy, and needed at the end only

            os.chdir("/")
            removed = self._folder.rename(f"{self._folder}.removed")  # at once: nobody shall open half a folder
            shutil.rmtree(removed, ignore_errors=True)


def _say(line: str) -> None:
    print(f"guard: {line}", file=sys.stderr, flush=True)  # to the server's log


def make_private_folder(folder: Path) -> None:
    """Make the folder of the socket, or see that it is ours alone: anybody could have made it first."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            sys.exit(f"guard: {folder} is not a private folder of this user; remove it")


def _directives(address: Path) -> list[str]:
    network = ["--port", "0", "--unixsocket", str(address), "--unixsocketperm", "700"]
    data = ["--dir", ".", "--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
    return [*network, *data, "--daemonize", "no"]


def main(folder: str, address: str, binary: str, guard_lock: str, temporary: str = "") -> None:
    """Detach (the program that started this one waits for this process, and for this only), then run."""
    os.set_inheritable(int(guard_lock), False)
    if os.fork():
        os._exit(0)
    os.umask(0o077)
    os.chdir(folder)
    # Blocked, not ignored: a server just forked must not miss the SIGINT that ends it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    Guard(Path(folder), Path(address), binary, temporary=bool(temporary)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
