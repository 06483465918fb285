"""Children of a measurement: a function of this package, called in an interpreter of its own.

A producer or worker that is measured shares neither its interpreter nor its heap with what measures it. A child, and
what it starts itself, finds modules where this process does, so it measures the very fastq that was checked here.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_START = "import sys, bench.children; bench.children.main(*sys.argv[1:])"
STOP_TIMEOUT = 30.0  # seconds
HOLD = "FASTQ_BENCH_HOLD"  # set: a child stops itself where its measurement begins, until it is continued


class ChildFailed(Exception):
    """A child ended with an error, or before it was told to."""


class Child:
    """A function that runs in its own process, on the server at `url`; leaving the `with` ends it by SIGTERM.

    Arguments and result cross as JSON; the function must be found by its module and name.

    >>> with Child(producers.bulk, server.url, jobs=1000) as child:  # doctest: +SKIP
    ...     rate = child.result()
    """

    def __init__(self, function: Callable[..., Any], url: str, *, hold: bool = False, **arguments: Any) -> None:
        self._name = f"{function.__module__}.{function.__name__}"
        path = os.pathsep.join(filter(None, sys.path))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, self._name, json.dumps(arguments)],
            env={**os.environ, "FASTQ_URL": url, "PYTHONPATH": path, HOLD: "1" if hold else ""},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def result(self) -> Any:
        """Wait for the function to return, and what it returned. Raises ChildFailed."""
        output, _ = self._process.communicate()
        if self._process.returncode:
            raise ChildFailed(f"{self._name} ended with exit code {self._process.returncode}")
        return json.loads(output.splitlines()[-1])

    def check(self) -> None:
        """Raise ChildFailed if it has ended."""
        if self._process.poll() is not None:
            raise ChildFailed(f"{self._name} ended with exit code {self._process.returncode}")

    def freeze(self) -> None:
        """Stop it (SIGSTOP) until it is continued."""
        self._process.send_signal(signal.SIGSTOP)
        self.wait_frozen()

    def wait_frozen(self) -> None:
        """Wait until it is stopped. Raises ChildFailed if it ends instead."""
        stopped = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if stopped is None or stopped.si_code != os.CLD_STOPPED:
            self.check()

    def thaw(self) -> None:
        """Continue it."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it by SIGTERM and wait."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.communicate(timeout=STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def call(function: Callable[..., Any], url: str, **arguments: Any) -> Any:
    """Call a function in a child and return its result. Raises ChildFailed."""
    with Child(function, url, **arguments) as child:
        return child.result()


def memory_bytes(field: str, pid: int | str = "self") -> int:
    """Memory of a process as Linux tells it: its VmRSS now, or its VmHWM, the most that it has had."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024


def begin() -> None:
    """To be called in the child where its measurement begins: a profiler may want to take hold of it here."""
    if os.environ.get(HOLD):
        os.kill(os.getpid(), signal.SIGSTOP)


def main(name: str, arguments: str) -> None:
    """What the child does."""
    module, _, function = name.rpartition(".")
    print(json.dumps(getattr(importlib.import_module(module), function)(**json.loads(arguments))))
