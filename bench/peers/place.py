"""The place where systems are measured: one private server, and the programs that are run on it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.peers import tally
from bench.peers.child import START
from bench.peers.environments import Installed
from bench.peers.tally import Tally
from tests.support import process
from tests.support.servers import Server

TIMEOUT = 120.0  # seconds that a producer may take
STALL_TIMEOUT = 20.0  # seconds in which a worker runs nothing
STOP_TIMEOUT = 1.0  # seconds in which a program may end by itself
POLL = 0.005


class LoadFailed(Exception):
    """A load that a system did not do; the reason."""


class Place:
    """A private server without persistence (or with an append-only file), for the time of a `with`.

    The programs of one load are ended before those of the next are started, with all that they started themselves.
    """

    def __init__(self, aof: bool = False) -> None:
        process.adopt_orphans()
        self._aof = aof
        # The file is rewritten when the server is empty, and not while something is measured.
        self._server = Server(aof="everysec" if aof else None, config={"auto-aof-rewrite-percentage": 0})
        self._redis = self._server.client()
        self._folder = tempfile.TemporaryDirectory(prefix="fastq-peers-")
        self._names = (f"program-{number}" for number in itertools.count())
        self._nested = 0

    # --- the server

    def clear(self) -> None:
        """Empty the server, of scripts and functions too."""
        self._redis.flushall()
        self._redis.script_flush()
        self._redis.function_flush()
        if self._aof:
            self._redis.bgrewriteaof()
            while self._is_rewriting():
                time.sleep(POLL)

    def cpu_us(self) -> float:
        """Microseconds of CPU that the server's main thread has used so far."""
        info = self._redis.info("cpu")
        return float(info["used_cpu_sys_main_thread"] + info["used_cpu_user_main_thread"]) * 1e6

    def used_bytes(self) -> int:
        """The memory that the server uses."""
        return int(self._redis.info("memory")["used_memory"])

    def _is_rewriting(self) -> bool:
        info = self._redis.info("persistence")
        return bool(info["aof_rewrite_in_progress"] or info["aof_rewrite_scheduled"])

    # --- programs

    def produce(self, installed: Installed, load: str, **arguments: object) -> float:
        """The rate that a producer tells of its load. Raises LoadFailed."""
        with self._programs() as start:
            program = start(installed, load, json.dumps(arguments))
            try:
                program.process.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                raise LoadFailed(f"its producer was not done after {TIMEOUT:.0f} s") from None
            if program.process.returncode:
                raise LoadFailed(f"its producer {program.end()}")
            return float(json.loads(program.output.read_text().splitlines()[-1]))

    @contextlib.contextmanager
    def worker(self, installed: Installed, processes: int) -> Iterator[Worker]:
        """A worker of so many processes, ended with the `with`."""
        programs, each = (1, processes) if installed.system.whole else (processes, 1)
        with Tally() as told, self._programs() as start:
            yield Worker(told, [start(installed, "work", str(each), {tally.PATH: told.path}) for _ in range(programs)])

    @contextlib.contextmanager
    def _programs(self) -> Iterator[Callable[..., Program]]:
        """What starts programs; all of them end with the `with`, those of the outermost with whatever they left behind."""
        started: list[Program] = []

        def start(installed: Installed, command: str, argument: str, variables: dict[str, str] | None = None) -> Program:
            environment = {
                **os.environ,
                **installed.system.variables,
                **(variables or {}),
                "FASTQ_PEERS_URL": self._server.url,
                "PYTHONPATH": installed.path,
            }
            called = [installed.python, "-P", "-c", START, installed.system.program, command, argument]
            started.append(Program(called, environment, Path(self._folder.name), next(self._names)))
            return started[-1]

        self._nested += 1
        try:
            yield start
        finally:
            for program in started:
                program.ask_to_end()
            for program in started:
                program.kill()
            self._nested -= 1
            if not self._nested:
                self._end_strays()

    def _end_strays(self) -> None:
        """End what has left the group of the program that started it."""
        for pid in process.descendants():
            if pid != self._server.pid:
                process.end(pid)

    def close(self) -> None:
        """End the server."""
        self._server.close()
        self._folder.cleanup()

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Program:
    """A program that runs, with its children in a process group of their own."""

    def __init__(self, called: list[str], environment: dict[str, str], folder: Path, name: str) -> None:
        self.output = folder / f"{name}.out"
        self._errors = folder / f"{name}.err"
        with self.output.open("wb") as output, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                called,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )

    def end(self) -> str:
        """How it ended, and its last words."""
        return f"ended with exit code {self.process.poll()}: {self.last_words()}"

    def last_words(self) -> str:
        """The last line that it wrote as an error, else at all."""
        for path in (self._errors, self.output):
            if lines := path.read_text(errors="replace").strip().splitlines():
                return lines[-1].strip()
        return "it wrote nothing"

    def ask_to_end(self) -> None:
        """SIGTERM, if it still runs."""
        if self.process.poll() is None:
            self.process.terminate()

    def kill(self) -> None:
        """Wait a while, and end what is left of its group."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_TIMEOUT)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: permission is what a zombie lacks
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Worker:
    """The programs of a worker, and what their jobs tell."""

    def __init__(self, told: Tally, programs: list[Program]) -> None:
        self.tally = told
        self._programs = programs

    def wait(self, reached: Callable[[], bool]) -> None:
        """Wait until its jobs have told what is waited for. Raises LoadFailed."""
        told, deadline = (0, 0), time.monotonic() + STALL_TIMEOUT
        while not reached():
            for program in self._programs:
                if program.process.poll() is not None:
                    raise LoadFailed(f"its worker {program.end()}")
            before, told = told, (self.tally.count().done, self.tally.delay_count)
            if told != before:
                deadline = time.monotonic() + STALL_TIMEOUT
            if time.monotonic() > deadline:
                words = self._programs[0].last_words()
                raise LoadFailed(f"its worker stood still after {told[0]} jobs and {told[1]} delays: {words}")
            time.sleep(POLL)
