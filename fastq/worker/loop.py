"""The event loop of a worker's process, which nothing that a job left behind may stop, nor keep from ending."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

import uvloop

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger("fastq.worker")

END_WITHIN = 0.2  # seconds that tasks which jobs left behind have to end


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on a new event loop, and return what it returns.

    As uvloop.run(), but: a SystemExit in a task or callback that a job started is logged and ends nothing else, and the
    end does not wait for tasks that swallow their cancellation, nor for threads of `asyncio.to_thread`.
    """
    loop = uvloop.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        loop.set_default_executor(_LooseThreads())
        task = loop.create_task(main)
        while not task.done():
            try:
                loop.run_until_complete(task)
            except (SystemExit, KeyboardInterrupt):
                if not task.done():
                    _log.exception("something that a job has started wants to end the process: it does not")
        return task.result()
    finally:
        try:
            loop.run_until_complete(_end_rest())
        finally:
            asyncio.set_event_loop(None)
            loop.close()


async def _end_rest() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    if rest:
        await asyncio.wait(rest, timeout=END_WITHIN)
    try:
        async with asyncio.timeout(END_WITHIN):
            await asyncio.get_running_loop().shutdown_asyncgens()
    except TimeoutError:
        pass


class _LooseThreads(ThreadPoolExecutor):
    """What `asyncio.to_thread` and `run_in_executor` use: threads that nobody waits for at the end."""

    def __init__(self, threads: int = 32) -> None:
        super().__init__(1)  # unused: its threads would be waited for when the interpreter ends
        self._most = threads
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call the function in a thread."""
        future: Future[T] = Future()
        self._calls.put((future, lambda: fn(*args, **kwargs)))
        if not self._idle.acquire(blocking=False) and self._started < self._most:
            self._started += 1
            threading.Thread(target=self._serve, name=f"fastq-thread-{self._started}", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for nothing."""

    def _serve(self) -> None:
        while True:
            future, call = self._calls.get()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            del future, call
            self._idle.release()
