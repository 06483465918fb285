"""Code around every enqueue and every run: trace context, tenant ids, timing, error reports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from fastq.current import CurrentJob, current_job
from fastq.errors import ConfigError

Next: TypeAlias = Callable[[], Awaitable[Any]]
TaskCall: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]
RunFunction: TypeAlias = Callable[[CurrentJob, Next], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class OutgoingCall:
    """A job about to be enqueued. What is put into `headers` travels with it, to `current_job().headers`."""

    task: str
    queue: str
    headers: dict[str, str]


class Middleware:
    """Override what is needed. Those that were registered first are outermost.

    >>> @app.middleware
    ... class Tenants(Middleware):
    ...     def enqueue(self, call: OutgoingCall) -> None:
    ...         call.headers["tenant"] = tenant.get()
    ...     async def run(self, job: CurrentJob, call_next: Next) -> Any:
    ...         tenant.set(job.headers["tenant"])
    ...         return await call_next()
    """

    def enqueue(self, call: OutgoingCall) -> None:
        """Called for each job that is enqueued here, before it is sent. What it raises, the caller of `enqueue` gets."""

    async def run(self, job: CurrentJob, call_next: Next) -> Any:
        """Called around each attempt, of async and sync tasks alike, on the event loop. Returns the task's result.

        `await call_next()` runs what is further in, the task at last. What is raised here counts as raised by the task.
        """
        return await call_next()


class _Function(Middleware):
    """A plain function around runs."""

    def __init__(self, function: RunFunction) -> None:
        self._function = function

    async def run(self, job: CurrentJob, call_next: Next) -> Any:
        return await self._function(job, call_next)


class Middlewares:
    """Those of one app, in order."""

    def __init__(self) -> None:
        self._all: list[Middleware] = []
        self.outgoing: list[Callable[[OutgoingCall], None]] = []

    def add(self, given: Any) -> None:
        """Take in a Middleware (or its class, made without arguments) or an async function around runs. Raises ConfigError."""
        if isinstance(given, type) and issubclass(given, Middleware):
            given = given()
        elif not isinstance(given, Middleware):
            if not callable(given):
                raise ConfigError(f"{given!r} is no middleware: give a Middleware, or an async function of (job, call_next)")
            given = _Function(given)
        self._all.append(given)
        if type(given).enqueue is not Middleware.enqueue:
            self.outgoing.append(given.enqueue)

    def around(self, call: TaskCall) -> TaskCall:
        """`call` with all of them around it; `call` itself when there are none."""
        layers = [one.run for one in self._all if type(one).run is not Middleware.run]
        return _wrapped(layers, call) if layers else call


def _wrapped(layers: Sequence[RunFunction], call: TaskCall) -> TaskCall:
    async def run(*args: Any, **kwargs: Any) -> Any:
        job = current_job()

        async def enter(depth: int) -> Any:
            if depth == len(layers):
                return await call(*args, **kwargs)
            return await layers[depth](job, lambda: enter(depth + 1))

        return await enter(0)

    return run
