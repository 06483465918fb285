"""What a worker process sets up once for all of its jobs: pools, clients, models."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias, TypeVar

from fastq.errors import ConfigError

S = TypeVar("S")
Lifespan: TypeAlias = "Callable[[], AsyncIterator[Any]] | Callable[[], AbstractAsyncContextManager[Any]]"


class Lifespans:
    """Those of one app, entered in the order in which they were registered and left in the opposite one.

    The states that they yield are found by their type.
    """

    def __init__(self) -> None:
        self._makers: list[Callable[[], AbstractAsyncContextManager[Any]]] = []
        self._states: list[Any] = []

    def add(self, lifespan: Any) -> None:
        """Take in an async generator function, or a function that returns an async context manager. Raises ConfigError."""
        if inspect.isasyncgenfunction(lifespan):
            lifespan = asynccontextmanager(lifespan)
        if not callable(lifespan):
            raise ConfigError(f"{lifespan!r} is no lifespan: give an async generator function that yields once")
        self._makers.append(lifespan)

    @asynccontextmanager
    async def entered(self) -> AsyncIterator[None]:
        """Set everything up for as long as the block lasts."""
        before = self._states
        async with AsyncExitStack() as stack:
            states = []
            for make in self._makers:
                states.append(await stack.enter_async_context(make()))
                self._states = list(states)
            try:
                yield
            finally:
                self._states = before

    def state(self, kind: type[S]) -> S:
        """The state of this type. Raises LookupError where no lifespan has yielded one."""
        for state in self._states:
            if isinstance(state, kind):
                return state
        raise LookupError(
            f"no lifespan has yielded a {kind.__name__}: lifespans run in workers (and under app.testing() while jobs run),"
            " not in producers"
        )
