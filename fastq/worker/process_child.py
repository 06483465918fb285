"""A process for tasks with `executor="process"`: it imports them by name and runs one job after another for its worker.

The worker may kill it at any time. When the worker is gone their socket ends, and this process ends with it, and with it all
that its job has started.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import os
import queue
import runpy
import select
import signal
import socket
import sys
import threading
import time
import types
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from fastq import logs
from fastq.codec import encode_plain, read_signature
from fastq.task import Task
from fastq.worker.failures import describe
from fastq.worker.homes import Home, find
from fastq.worker.process_run import Run
from fastq.worker.process_words import NOTHING, Order, Raised, Ready, Returned, Setup, Told, frame, hear_worker
from fastq.worker.remote_errors import describe_error
from fastq_ext.runner import set_current_run

END_WITHIN = 0.5  # seconds for an idle process to end in good order
serving = False  # this process runs jobs for a worker


class _Server:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self._functions: dict[Home, tuple[Callable[..., Any], Any]] = {}
        self._run: Run | None = None

    def serve(self) -> None:
        """Run jobs until the worker lets go."""
        setup = hear_worker(self._read())
        assert isinstance(setup, Setup)
        threading.Thread(target=self._listen, name="fastq-worker-listener", daemon=True).start()
        _prepare(setup)
        self._say(Ready())
        while (order := self._orders.get()) is not None:
            said = self._obey(order)
            self._run = None
            self._say(said)

    def _listen(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                said = hear_worker(self._read())
                if isinstance(said, Order):
                    self._orders.put(said)
                elif isinstance(said, Told) and (run := self._run) is not None:
                    run.reason = said.reason
        self._orders.put(None)

    def _obey(self, order: Order) -> Returned | Raised:
        try:
            run = Run(order)
            self._run = run
            function, decoder = self._find(order.home, order.task)
            args, kwargs = decoder.decode(run.message.payload)
            value = contextvars.copy_context().run(_call, run, function, args, kwargs)
        except BaseException as error:
            return describe_error(error)
        try:
            kept = msgspec.Raw(encode_plain(value)) if order.keeps else NOTHING
        except BaseException as error:
            return Raised("", "", f"the result cannot be encoded: {describe(error)}", "", NOTHING, "unencodable")
        return Returned(kept, run.heeded)

    def _find(self, home: Home, task: str) -> tuple[Callable[..., Any], Any]:
        known = self._functions.get(home)
        if known is None:
            found = find(home)
            is_task = isinstance(found, Task)
            known = (found.fn, found.decoder) if is_task else (found, read_signature(task, found).decoder)
            self._functions[home] = known
        return known

    def _say(self, said: msgspec.Struct) -> None:
        self._connection.sendall(frame(said))

    def _read(self) -> bytes:
        return self._read_exactly(int.from_bytes(self._read_exactly(4), "little"))

    def _read_exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._connection.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)


def _call(run: Run, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    set_current_run(run)
    return function(*args, **kwargs)


def _prepare(setup: Setup) -> None:
    """Find modules as the worker does, import those that have tasks, and log as it does."""
    sys.path[:] = setup.sys_path
    sys.argv[:] = setup.argv
    if setup.main_file:
        # Not as "__main__": what stands under `if __name__ == "__main__"` is the worker's to do.
        module = types.ModuleType("__mp_main__")
        module.__dict__.update(runpy.run_path(setup.main_file, run_name="__mp_main__"))
        sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    for name in setup.modules:
        with contextlib.suppress(Exception):  # a job that needs it will tell
            importlib.import_module(name)
    if setup.log is not None:
        logs.set_up(*setup.log)


def main(descriptor: int) -> None:
    """`python -m fastq.worker.process_child FD`."""
    global serving
    serving = True
    # Signals are for the worker, which kills this process when it is time. Handlers, since what is ignored is inherited.
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, lambda *_: None)
    os.set_inheritable(descriptor, False)
    if os.fork() == 0:
        _watch_worker(descriptor)
    with contextlib.suppress(EOFError, ConnectionError), socket.socket(fileno=descriptor) as connection:
        _Server(connection).serve()


def _watch_worker(descriptor: int) -> NoReturn:
    """Kill the whole group when the worker is gone: a process of its own, since a job can hold the interpreter for hours."""
    worker = select.poll()
    worker.register(descriptor, 0)  # only its end is waited for
    worker.poll()
    time.sleep(END_WITHIN)
    os.killpg(0, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    # The module by its name: `serving` must be seen by whoever imports it.
    importlib.import_module("fastq.worker.process_child").main(int(sys.argv[1]))
