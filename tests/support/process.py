"""Children of the tests: started with their output captured, waited for by signals, and none of them left behind."""

import contextlib
import ctypes
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
PR_SET_CHILD_SUBREAPER = 36
# Helpers of Python, which end with it, and our own look at the process table.
NOT_OURS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "/bin/ps -A -o")

_children: list["Child"] = []


class Child:
    """A program started by a test; its lines are read as they come, so that it never blocks on a full pipe.

    >>> with python("-c", "print('ready'); input()") as child:
    ...     child.wait_line("ready")
    """

    def __init__(
        self, command: list[str], *, env: Mapping[str, str] | None = None, cwd: str | Path | None = None
    ) -> None:
        merged = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        self._popen = subprocess.Popen(
            command, env=merged, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.pid = self._popen.pid
        self.command = command
        self._grown = threading.Condition()
        self._lines: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._readers = [self._read("stdout", self._popen.stdout), self._read("stderr", self._popen.stderr)]
        _children.append(self)

    def _read(self, name: str, pipe: IO[bytes] | None) -> threading.Thread:
        def loop() -> None:
            assert pipe is not None
            with pipe:
                for line in pipe:
                    with self._grown:
                        self._lines[name].append(line.decode(errors="replace").rstrip("\n"))
                        self._grown.notify_all()
            with self._grown:
                self._grown.notify_all()

        thread = threading.Thread(target=loop, name=f"{name} of {self.pid}", daemon=True)
        thread.start()
        return thread

    @property
    def stdout(self) -> str:
        return "\n".join(self._lines["stdout"])

    @property
    def stderr(self) -> str:
        return "\n".join(self._lines["stderr"])

    @property
    def returncode(self) -> int | None:
        return self._popen.poll()

    def wait_line(self, pattern: str, timeout: float = 15, *, count: int = 1) -> re.Match[str]:
        """The match of the `count`-th line of either output that fits `pattern`; AssertionError if none comes."""
        deadline = time.monotonic() + timeout
        with self._grown:
            while True:
                found = [m for lines in self._lines.values() for line in lines if (m := re.search(pattern, line))]
                if len(found) >= count:
                    return found[count - 1]
                left = deadline - time.monotonic()
                if left <= 0 or not any(reader.is_alive() for reader in self._readers):
                    raise AssertionError(f"no line like {pattern!r} from {self.command}:\n{self.stdout}\n{self.stderr}")
                self._grown.wait(min(left, 0.1))  # a reader that ends between the check and here notifies nobody

    def write(self, line: str) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(line.encode() + b"\n")
        self._popen.stdin.flush()

    def send(self, signum: int) -> None:
        os.kill(self.pid, signum)

    def wait(self, timeout: float = 30) -> int:
        """The exit code (negative: the signal), with all output read; AssertionError after `timeout`."""
        try:
            code = self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.command} still runs after {timeout} s:\n{self.stdout}\n{self.stderr}"
            ) from None
        for reader in self._readers:
            reader.join(1)  # a grandchild that inherited the pipe may keep it open: not waited for
        return code

    def kill(self) -> int:
        """SIGKILL, and wait."""
        if self.returncode is None:
            self.send(signal.SIGKILL)
        return self.wait()

    def close(self) -> None:
        """End it if it still runs, and let go of its pipes."""
        self.kill()
        if self._popen.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._popen.stdin.close()
        if self in _children:
            _children.remove(self)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def python(*args: str, env: Mapping[str, str] | None = None, cwd: str | Path | None = None) -> Child:
    """Start this Python; -P, so that the checkout's uncompiled folder never shadows the installed package."""
    return Child([sys.executable, "-P", *args], env=env, cwd=cwd)


def script(body: str, *args: str, env: Mapping[str, str] | None = None, cwd: str | Path | None = None) -> Child:
    """Start this Python on a piece of code that may import `tests.support` (and fastq, as it is installed)."""
    # At the end of the path: at its beginning (PYTHONPATH) the checkout would shadow an installed fastq.
    return python("-c", f"import sys; sys.path.append({str(ROOT)!r})\n{body}", *args, env=env, cwd=cwd)


def close_all() -> None:
    """End every child that a test has not closed."""
    for child in list(_children):
        child.close()


@dataclass(frozen=True)
class Process:
    """A row of the process table. `state` is the letter that ps shows ("T" stopped, "Z" ended, not yet waited for)."""

    pid: int
    parent: int
    state: str
    command: str


def look_up(pid: int) -> Process | None:
    """The process of this pid, None when there is none."""
    if sys.platform != "linux":
        return _ps().get(pid)
    try:
        # pid (name, which may hold anything) state parent ...
        state, parent = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")[2].split()[:2]
        command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Process(pid, int(parent), state, command)


def _table() -> dict[int, Process]:
    if sys.platform != "linux":
        return _ps()
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return {pid: found for pid in pids if (found := look_up(pid))}


def _ps() -> dict[int, Process]:
    rows = subprocess.run(["/bin/ps", "-A", "-o", "pid=,ppid=,stat=,args="], capture_output=True, text=True, check=True)
    fields = [line.split(None, 3) for line in rows.stdout.splitlines()]
    return {int(pid): Process(int(pid), int(ppid), stat[0], " ".join(args)) for pid, ppid, stat, *args in fields}


def alive(pid: int) -> bool:
    """Whether the process runs; one that ended counts as gone, even if nobody has waited for it yet."""
    found = look_up(pid)
    return found is not None and found.state not in "ZX"


def wait_gone(pid: int, timeout: float = 15) -> None:
    """Wait until the process has ended (it need not be a child); AssertionError after `timeout`."""
    deadline = time.monotonic() + timeout
    with contextlib.suppress(ProcessLookupError), _pidfd(pid) as fd:
        if fd is not None:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            assert poll.poll(timeout * 1000), f"process {pid} still runs after {timeout} s"
            return
        while alive(pid):
            assert time.monotonic() < deadline, f"process {pid} still runs after {timeout} s"
            time.sleep(0.02)


def wait_stopped(pid: int, timeout: float = 5) -> None:
    """Wait until a SIGSTOP has taken hold."""
    deadline = time.monotonic() + timeout
    while (found := look_up(pid)) is not None and found.state != "T":
        assert time.monotonic() < deadline, f"process {pid} is not stopped after {timeout} s"
        time.sleep(0.005)


@contextlib.contextmanager
def _pidfd(pid: int) -> Iterator[int | None]:
    if not hasattr(os, "pidfd_open"):
        yield None
        return
    fd = os.pidfd_open(pid)
    try:
        yield fd
    finally:
        os.close(fd)


def wait_until(condition: Callable[[], T], timeout: float = 45) -> T:
    """The first value of `condition()` that is true; AssertionError after `timeout`."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout} s: {condition}"
        time.sleep(0.005)
    return value


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends (Linux), so that `descendants` misses none."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants() -> dict[int, str]:
    """Running children of this process and theirs: pid -> command."""
    children: dict[int, list[Process]] = defaultdict(list)
    for process in _table().values():
        children[process.parent].append(process)
    found: dict[int, str] = {}
    pending = [os.getpid()]
    while pending:
        for child in children[pending.pop()]:
            pending.append(child.pid)
            if child.state not in "ZX" and not any(name in child.command for name in NOT_OURS):
                found[child.pid] = child.command
    return found


def left_behind(timeout: float = 5) -> dict[int, str]:
    """What still runs of all that the tests started, after `timeout` seconds in which it may end by itself."""
    deadline = time.monotonic() + timeout
    while (left := descendants()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def end(pid: int) -> None:
    """SIGKILL a process that was left behind, and wait for it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    wait_gone(pid)
