"""Threads for sync tasks."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

THREADS = 32


class Threads:
    """Calls functions in threads, each in the context of its job, so that `current_job()` works there too."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int = THREADS) -> None:
        self._loop = loop
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None  # made for the first sync job

    def caller(self, function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
        """A coroutine function that calls `function` in a thread."""

        async def call(*args: Any, **kwargs: Any) -> Any:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="fastq-task")
            context = contextvars.copy_context()
            future = self._loop.run_in_executor(self._pool, lambda: _guarded(context.run, function, args, kwargs))
            value, error = await future
            if error is not None:
                raise error
            return value

        return call

    def close(self) -> None:
        """Let go of the threads; those that still run a job are left to it."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _guarded(run: Any, function: Any, args: Any, kwargs: Any) -> tuple[Any, BaseException | None]:
    # Futures do not carry StopIteration, and treat SystemExit and CancelledError as their own: errors travel as values.
    try:
        return run(function, *args, **kwargs), None
    except BaseException as error:
        return None, error
