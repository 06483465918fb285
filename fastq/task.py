"""Tasks: functions with a name and options, whose calls can be enqueued."""
from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import AsyncIterable, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeAlias, TypedDict, TypeVar, Unpack
from weakref import WeakSet

from fastq.codec import PayloadDecoder, TaskSignature, read_signature
from fastq.config import DEFAULT_QUEUE, check_name, check_seconds, check_task_name
from fastq.errors import ConfigError
from fastq.job import BulkResult, Job
from fastq.options import CallOptions, Options, check_expires, check_timeout, check_unique, refuse_unknown
from fastq.retry import Backoff, Retries, RetryPolicy, retry_policy
from fastq.unique import Unique, lock_key_maker, warn_of_weak_lock

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_TIMEOUT = 3600.0
Executor = Literal["thread", "process"]
_log = logging.getLogger("fastq")


class TaskOptions(TypedDict, total=False):
    """What `@app.task(...)` takes."""

    name: str
    queue: str
    retries: Retries
    timeout: float | timedelta | None
    expires: float | timedelta | None
    unique: Unique | None
    result_ttl: float | timedelta | None
    retention: float | timedelta
    track: bool
    executor: Executor


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Target:
    """What a producer has to know of a task. `signature` None: the function is not known in this program."""

    name: str
    signature: TaskSignature | None = None
    tracked: bool = False


class PreparedCall:
    """A call with its task and options, to be enqueued with others: see `Task.prepare`."""

    __slots__ = ("args", "kwargs", "route")

    def __init__(self, route: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.route = route
        self.args = args
        self.kwargs = kwargs

    def __repr__(self) -> str:
        parts = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"<PreparedCall {self.route.task}({', '.join(parts)})>"


Item: TypeAlias = "tuple[Any, ...] | dict[str, Any] | PreparedCall"


class Enqueuer(Protocol):
    """Who puts calls into queues. A route is what all calls with one target and the same options share; opaque here."""

    def route(self, target: Target, options: Options) -> Any: ...
    def enqueue(self, route: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Job: ...
    async def aenqueue(self, route: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Job: ...
    def enqueue_many(self, route: Any, items: Iterable[Item], *, handles: bool) -> BulkResult: ...
    async def aenqueue_many(
        self, route: Any, items: Iterable[Item] | AsyncIterable[Item], *, handles: bool
    ) -> BulkResult: ...


class BoundTask(Generic[P]):
    """A task with the options of one call: what `using(...)` returns. It takes the arguments of the task's function."""

    def __init__(self, enqueuer: Enqueuer, target: Target, options: Options) -> None:
        self._enqueuer = enqueuer
        self._target = target
        self._options = options
        self.route = enqueuer.route(target, options)

    @property
    def name(self) -> str:
        """The name of the task."""
        return self._target.name

    @property
    def queue(self) -> str:
        """The queue that its jobs go to."""
        return self._options.queue

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Put a job into the queue and return its handle.

        Raises DuplicateJobError and JobIDConflictError (the job is there already), PayloadError (arguments that cannot
        be encoded), QueueFull, BrokerError.

        >>> send_email.enqueue("o-1", template="receipt")  # doctest: +SKIP
        """
        return self._enqueuer.enqueue(self.route, args, kwargs)

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """`enqueue()` for async code; concurrent calls on one event loop share their way to Redis.

        Cancelling it withdraws the wait, not the job.
        """
        return await self._enqueuer.aenqueue(self.route, args, kwargs)

    def prepare(self, /, *args: P.args, **kwargs: P.kwargs) -> PreparedCall:
        """The call as an item for `enqueue_many`, where tasks, queues and options may be mixed."""
        return PreparedCall(self.route, args, kwargs)

    def enqueue_many(self, items: Iterable[Item], *, handles: bool = True) -> BulkResult:
        """Enqueue a job for each item, in chunks, so that any number can be streamed.

        An item is a tuple (positional arguments), a dict with str keys (keyword arguments) or a prepared call.
        Duplicates and conflicts are counted in the result and never raise. `handles=False` keeps nothing per item.
        Raises BulkError when an item is bad or the connection is lost: its `result` tells what is in.

        >>> resize.enqueue_many((f"img/{i}.png",) for i in range(5_000_000))  # doctest: +SKIP
        """
        return self._enqueuer.enqueue_many(self.route, items, handles=handles)

    async def aenqueue_many(
        self, items: Iterable[Item] | AsyncIterable[Item], *, handles: bool = True
    ) -> BulkResult:
        """`enqueue_many()` for async code; takes async iterables too."""
        return await self._enqueuer.aenqueue_many(self.route, items, handles=handles)

    def using(self, **options: Unpack[CallOptions]) -> BoundTask[P]:
        """The same task with other options for its next calls: delay, at, queue, job_id, retention, unique, retries,
        timeout, expires. Raises ConfigError.

        >>> send_email.using(delay=60, queue="slow").enqueue("o-1")  # doctest: +SKIP
        """
        changed = self._options.changed(options)
        if changed.queue != self._options.queue:
            self._warn_of_other_queue(changed)
        return BoundTask(self._enqueuer, self._target, changed)

    def _warn_of_other_queue(self, options: Options) -> None:
        unique = options.unique
        if unique is not None and unique.key is not None and self._target not in _warned_of_other_queue:
            _warned_of_other_queue.add(self._target)
            _log.warning(
                "task %r: its lock holds within one queue; enqueued to %r too, two jobs of one key can be in at once:"
                " keep such a task in one queue",
                self.name,
                options.queue,
            )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} in {self.queue!r}>"


_warned_of_other_queue: WeakSet[Target] = WeakSet()


class Task(BoundTask[P], Generic[P, R]):
    """A registered function. Calling it just calls the function; `enqueue` makes a job of the call.

    The worker reads `name`, `fn`, `is_async`, `executor`, `timeout` (seconds or None), `retry` (a policy), `result_ttl`
    (seconds or None), `track` and `decoder`.
    """

    def __init__(self, enqueuer: Enqueuer, function: Callable[P, R], options: TaskOptions) -> None:
        fn = _plain_function(function)
        refuse_unknown("option of a task", options, TaskOptions.__annotations__)
        name = check_task_name(options.get("name") or default_name(fn))
        if _is_method(fn):
            raise ConfigError(f"task {name!r} is a method: a task is a function or a static method, it has no self")
        self.fn: Callable[P, R] = fn
        self.is_async = inspect.iscoroutinefunction(fn)
        self.executor = _executor(name, options.get("executor"), self.is_async)
        self.timeout = check_timeout(options.get("timeout", DEFAULT_TIMEOUT))
        self.retry: RetryPolicy = retry_policy(options.get("retries", 3))
        self.result_ttl = _result_ttl(options.get("result_ttl"))
        self.track = bool(options.get("track", False)) or self.result_ttl is not None
        signature = read_signature(name, fn)
        self.decoder: PayloadDecoder = signature.decoder
        unique = check_unique(options.get("unique"))
        if unique is not None:
            self._check_lock(name, unique, signature)
        super().__init__(
            enqueuer,
            Target(name, signature, self.track),
            Options(
                queue=check_name("queue", options.get("queue", DEFAULT_QUEUE)),
                unique=unique,
                retention=check_seconds("retention", options.get("retention", 0)),
                expires=check_expires(options.get("expires")),
            ),
        )
        functools.update_wrapper(self, fn, updated=())

    @property
    def unique(self) -> Unique | None:
        """What makes its jobs unique, or None."""
        return self._options.unique

    @property
    def signature(self) -> TaskSignature:
        """What the function takes."""
        assert self._target.signature is not None
        return self._target.signature

    @property
    def target(self) -> Target:
        """What a producer has to know of it."""
        return self._target

    def lock_key(self, unique: Unique, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The lock key that a call with `unique` would have. Raises PayloadError."""
        return lock_key_maker(unique, self.name, self.signature)(args, kwargs)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, here and now."""
        return self.fn(*args, **kwargs)

    def _check_lock(self, name: str, unique: Unique, signature: TaskSignature) -> None:
        lock_key_maker(unique, name, signature)  # an unknown parameter is an error here
        longest: float | None = None
        if self.timeout is not None:
            longest = self.timeout
            if isinstance(self.retry, Backoff):  # what a function of the user's own decides is not known
                longest += self.timeout * self.retry.retries + self.retry.longest_delays()
        warn_of_weak_lock(unique, name, longest_run=longest)


# --- what may be a task, and how it is called by default


def default_name(function: Callable[..., Any]) -> str:
    """`module.qualname` without "<locals>."; a module that runs as `__main__` goes by the name others import it by."""
    module = function.__module__
    if module == "__main__":
        module = _name_of_main()
    return f"{module}.{function.__qualname__.replace('<locals>.', '')}"


def _name_of_main() -> str:
    main = sys.modules["__main__"]
    if (spec := getattr(main, "__spec__", None)) is not None:
        return str(spec.name).removesuffix(".__main__")
    if path := getattr(main, "__file__", None):
        return Path(path).stem
    return "__main__"


def _plain_function(given: Any) -> Any:
    function = given.__func__ if isinstance(given, staticmethod) else given
    if isinstance(function, Task):
        raise ConfigError(f"{function.name!r} is a task already")
    if isinstance(function, classmethod) or inspect.ismethod(function):
        raise ConfigError(f"{function!r} is a method: a task is a function or a static method")
    if not inspect.isfunction(function):
        raise ConfigError(f"{function!r} is no function: write a def (or async def) that calls it, and decorate that")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"{function!r} is a generator function: calling it would run nothing")
    return function


def _is_method(function: Any) -> bool:
    """Whether a function was defined in a class and takes the instance or the class first."""
    owner = function.__qualname__.rpartition(".")[0]
    if not owner or owner.endswith("<locals>"):
        return False
    return next(iter(inspect.signature(function).parameters), "") in ("self", "cls")


def _executor(task: str, executor: object, is_async: bool) -> Executor:
    if executor not in ("thread", "process", None):
        raise ConfigError(f'task {task!r}: executor={executor!r}: must be "thread" or "process"')
    if executor is not None and is_async:
        raise ConfigError(f"task {task!r} is async and runs on the event loop: executor= is for sync tasks")
    return "process" if executor == "process" else "thread"


def _result_ttl(value: object) -> float | None:
    return None if value is None else check_seconds("result_ttl", value, least=0.001)
