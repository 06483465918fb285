"""Run a command; then name and end whatever it left running. Exit code: the command's own, or 1 if anything was left.

    python3 .ci/leftovers.py COMMAND...

On Linux this process makes itself the one that inherits orphans ("subreaper"): so a process that has detached itself is
found too, and none that is not the command's. Elsewhere orphans go to init, and only the command's own code counts.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
PATIENCE = 5.0  # seconds that what is about to end may take


def adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap() -> None:
    """Collect the children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def children() -> dict[int, str]:
    """Our children, by pid, with their command lines."""
    pids = Path(f"/proc/self/task/{os.getpid()}/children")
    found = {}
    for pid in map(int, pids.read_text().split()) if pids.exists() else ():
        found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def end_leftovers(patience: float) -> bool:
    """Wait `patience` seconds for all children to end by themselves, then kill the rest; whether there was a rest."""
    deadline = time.monotonic() + patience
    reap()
    while children() and time.monotonic() < deadline:
        time.sleep(0.05)
        reap()
    any_left = False
    while left := children():  # their own children come to us as they go
        any_left = True
        for pid, line in left.items():
            print(f"left running: {pid} {line}", file=sys.stderr)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return any_left


def main(command: list[str]) -> int:
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        code = subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    except BaseException:  # stopped from outside: the command is killed by now, what it had started is not
        end_leftovers(patience=0)
        raise
    return (end_leftovers(PATIENCE) and 1) or code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
