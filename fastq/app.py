"""FastQ: the tasks and the connection of one program."""
from __future__ import annotations

import importlib
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from datetime import timedelta
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, cast, overload

from fastq import results
from fastq.broker import requests
from fastq.broker.broker import Broker
from fastq.codec import PayloadDecoder
from fastq.config import DEFAULT_QUEUE, Config, DeadBounds, check_name, check_seconds, check_task_name
from fastq.errors import ConfigError
from fastq.job import BulkResult, Job, uid_bytes
from fastq.keys import QueueKeys, queue_keys
from fastq.lifespan import Lifespans
from fastq.locks import Locks
from fastq.middleware import Middlewares
from fastq.options import CallOptions, Options
from fastq.producer import Producer
from fastq.queues import Queue
from fastq.route import Route
from fastq.task import BoundTask, PreparedCall, Target, Task, TaskOptions

if TYPE_CHECKING:
    from fastq.testing import Testing

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
M = TypeVar("M")
L = TypeVar("L", bound=Callable[..., Any])


class NamedCalls:
    """Calls by name, without importing the function: what `app.using(...)` returns.

    A task that is registered in this program is enqueued with its own options and these; of any other name only these
    are known: its queue is "default" and it has no lock, unless they say otherwise.
    """

    def __init__(self, app: FastQ, changes: CallOptions) -> None:
        self._app = app
        self._changes = changes
        self._default = Options().changed(changes)  # what cannot work is refused here
        self._routes: dict[str, Route] = {}

    def enqueue(self, task: str, /, *args: Any, **kwargs: Any) -> Job:
        """Put a job into the queue and return its handle. Raises as `Task.enqueue` does."""
        return self._app.producer.enqueue(self.route(task), args, kwargs)

    async def aenqueue(self, task: str, /, *args: Any, **kwargs: Any) -> Job:
        """`enqueue()` for async code."""
        return await self._app.producer.aenqueue(self.route(task), args, kwargs)

    def prepare(self, task: str, /, *args: Any, **kwargs: Any) -> PreparedCall:
        """The call as an item for `enqueue_many`."""
        return PreparedCall(self.route(task), args, kwargs)

    def using(self, **options: Unpack[CallOptions]) -> NamedCalls:
        """The same with these options too. Raises ConfigError."""
        return NamedCalls(self._app, {**self._changes, **options})

    def route(self, name: str) -> Route:
        """What all calls of this name share. Raises ConfigError for what is no name."""
        route = self._routes.get(name)
        if route is None:
            task = self._app.tasks.get(check_task_name(name))
            if task is not None:
                route = task.using(**self._changes).route if self._changes else task.route
            else:
                route = self._app.producer.route(Target(name), self._default)
            self._routes[name] = route
        return route

    def forget(self) -> None:
        """A task was registered: a name may mean more than before."""
        self._routes.clear()


class FastQ:
    """The tasks and the connection of one program.

    `url` None: $FASTQ_URL, else redis://localhost:6379/0; it is read, and a connection made, at first use. One FastQ
    serves any number of threads, event loops and forked children. `include` names modules that have more tasks, for the
    worker to import. `lease` is in seconds: after so long without a sign of life a worker counts as dead. `max_queue`
    bounds the jobs that wait in a queue, `max_payload` the bytes of a message, `max_crashes` the workers that may die
    with a job in hand before it counts as dead, `max_dead` the dead jobs that a queue keeps. `validate` checks each call against
    the task's annotations. `redis_options` go to the Redis client. Raises ConfigError.

    >>> app = FastQ("redis://localhost:6379/0", namespace="shop")
    >>> @app.task(queue="mail", retries=5)
    ... async def send_email(order_id: str) -> None: ...
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str = "fastq",
        include: Iterable[str] = (),
        lease: float | timedelta = 10,
        max_queue: int | None = None,
        max_payload: int = 1 << 20,
        max_crashes: int = 3,
        max_dead: DeadBounds = DeadBounds(),  # noqa: B008  # frozen
        validate: bool = False,
        redis_options: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(include, str):
            raise ConfigError(f'include={include!r}: give a list of module names: ["{include}"]')
        self.config = Config(
            url=url,
            namespace=namespace,
            include=tuple(include),
            lease=check_seconds("lease", lease, least=0.5),
            max_queue=max_queue,
            max_payload=max_payload,
            max_crashes=max_crashes,
            max_dead=max_dead,
            validate=validate,
            redis_options=dict(redis_options or {}),
        )
        self.broker = Broker(self.config)
        self.middlewares = Middlewares()
        self.lifespans = Lifespans()
        self.producer = Producer(self.config, self.broker, self, self.middlewares.outgoing)
        self.move(self.config, self.broker)
        self._tasks: dict[str, Task[Any, Any]] = {}
        self._by_name = NamedCalls(self, {})

    # --- tasks

    @property
    def tasks(self) -> Mapping[str, Task[Any, Any]]:
        """The registered tasks by name."""
        return MappingProxyType(self._tasks)

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, /, **options: Unpack[TaskOptions]) -> Callable[[Callable[P, R]], Task[P, R]]: ...
    def task(self, function: Any = None, /, **options: Any) -> Any:
        """Register a function as a task: `@app.task`, or `@app.task(queue="mail", ...)`.

        Options: name, queue, retries (a number, a Backoff or a function), timeout and expires (seconds), unique,
        result_ttl and retention (seconds), track, executor ("thread" or "process", for sync functions). Raises
        ConfigError for a method, a name that is taken, an annotation that cannot be decoded, or an unknown option.
        """
        if function is None:
            return lambda function: self._register(function, cast(TaskOptions, options))
        if isinstance(function, str):
            raise ConfigError(f'@app.task({function!r}): a name is given as name={function!r}')
        return self._register(function, cast(TaskOptions, options))

    def middleware(self, given: M) -> M:
        """Register code around each enqueue and each run: a `Middleware`, or an async function of (job, call_next).

        >>> @app.middleware
        ... async def timed(job: CurrentJob, call_next: Next) -> Any:
        ...     with timer(job.task):
        ...         return await call_next()
        """
        self.middlewares.add(given)
        return given

    def lifespan(self, given: L) -> L:
        """Register what each worker process sets up before its first job and tears down after its last one.

        >>> @app.lifespan
        ... async def resources() -> AsyncIterator[Resources]:
        ...     async with create_pool() as pool:
        ...         yield Resources(pool)
        """
        self.lifespans.add(given)
        return given

    def state(self, kind: type[S]) -> S:
        """What a lifespan of this process has yielded, by its type. Raises LookupError outside of workers.

        >>> app.state(Resources).pool  # doctest: +SKIP
        """
        return self.lifespans.state(kind)

    def import_tasks(self) -> None:
        """Import the modules of `include`, so that their tasks are registered. Raises ImportError."""
        for module in self.config.include:
            importlib.import_module(module)

    # --- enqueue

    def enqueue(self, task: str, /, *args: Any, **kwargs: Any) -> Job:
        """Enqueue by name. Raises as `Task.enqueue` does.

        >>> app.enqueue("send_email", order_id="o-1")  # doctest: +SKIP
        """
        return self._by_name.enqueue(task, *args, **kwargs)

    async def aenqueue(self, task: str, /, *args: Any, **kwargs: Any) -> Job:
        """`enqueue()` for async code."""
        return await self._by_name.aenqueue(task, *args, **kwargs)

    def prepare(self, task: str, /, *args: Any, **kwargs: Any) -> PreparedCall:
        """A call by name as an item for `enqueue_many`."""
        return self._by_name.prepare(task, *args, **kwargs)

    def using(self, **options: Unpack[CallOptions]) -> NamedCalls:
        """Calls by name with options: delay, at, queue, job_id, retention, unique, retries, timeout, expires.

        >>> app.using(queue="mail", unique=Unique(ttl=60)).enqueue("send_email", order_id="o-1")  # doctest: +SKIP
        """
        return NamedCalls(self, options)

    def enqueue_many(self, items: Iterable[PreparedCall], *, handles: bool = True) -> BulkResult:
        """Enqueue prepared calls, of any tasks, queues and options. Raises BulkError; see `Task.enqueue_many`.

        >>> app.enqueue_many([send_email.prepare("o-1"), resize.prepare("a.png")])  # doctest: +SKIP
        """
        return self.producer.enqueue_many(None, items, handles=handles)

    async def aenqueue_many(
        self, items: Iterable[PreparedCall] | AsyncIterable[PreparedCall], *, handles: bool = True
    ) -> BulkResult:
        """`enqueue_many()` for async code; takes async iterables too."""
        return await self.producer.aenqueue_many(None, items, handles=handles)

    # --- jobs and queues

    def queue(self, name: str = DEFAULT_QUEUE) -> Queue:
        """A queue: its counts, workers and dead jobs; to be paused, resumed and purged. Raises ConfigError.

        >>> app.queue("mail").dead.replay_all()  # doctest: +SKIP
        """
        return Queue(self.broker, queue_keys(self.config.namespace, name), self._decoder_of)

    def job(self, uid: str | None = None, *, job_id: str | None = None, queue: str = DEFAULT_QUEUE) -> Job:
        """The handle of a job again, by its uid or its job_id, without asking Redis. Raises ConfigError."""
        check_name("queue", queue)
        if (uid is None) == (job_id is None):
            raise ConfigError("give either the uid or the job_id of the job, and its queue")
        try:
            return Job(self, uid_bytes(uid) if uid is not None else b"", queue, job_id)
        except (ValueError, AttributeError, TypeError):
            raise ConfigError(f"{uid!r} is not the uid of a job: it has the form of a UUID") from None

    def job_status(self, job: Job) -> str:
        """What `job.status()` asks."""
        return self.broker.run(results.status(self._keys(job), job.raw_uid, job.job_id, job.lock_key))

    async def ajob_status(self, job: Job) -> str:
        """What `job.astatus()` asks."""
        return await self.broker.arun(results.status(self._keys(job), job.raw_uid, job.job_id, job.lock_key))

    def job_result(self, job: Job, timeout: float | None) -> Any:
        """What `job.result()` asks."""
        return self.broker.run(results.wait(self._keys(job), job.raw_uid, job.job_id, timeout))

    async def ajob_result(self, job: Job, timeout: float | None) -> Any:
        """What `job.aresult()` asks."""
        return await self.broker.arun(results.wait(self._keys(job), job.raw_uid, job.job_id, timeout))

    def cancel_job(self, job: Job) -> bool:
        """What `job.cancel()` asks."""
        return self.broker.call(requests.cancel(self._keys(job), job.raw_uid, job.job_id or ""))

    async def acancel_job(self, job: Job) -> bool:
        """What `job.acancel()` asks."""
        return await self.broker.acall(requests.cancel(self._keys(job), job.raw_uid, job.job_id or ""))

    # --- run

    def worker(self, **options: Any) -> Any:
        """A worker for this program's tasks: `app.worker(...).run()`, or `await app.worker(...).arun()`."""
        # The one look upwards (docs/architecture.md, "Layers"): whoever only enqueues loads no worker.
        return importlib.import_module("fastq.worker.worker").Worker(self, **options)

    def testing(self) -> Testing:
        """This program under test: `with app.testing() as t`, or `async with`; see `fastq.testing`."""
        return cast("Testing", importlib.import_module("fastq.testing").Testing(self))

    def move(self, config: Config, broker: Broker) -> None:
        """Be there from now on; the test kit moves a program to a place of its own and back."""
        self.config, self.broker = config, broker
        self.producer.move(config, broker)
        self.locks = Locks(broker, self._route_of)

    # --- close

    def close(self) -> None:
        """Close this process's connections; the next use opens new ones."""
        self.broker.close()

    async def aclose(self) -> None:
        """Close the connections of this process and of this event loop."""
        await self.broker.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<FastQ {self.config.namespace!r}, {len(self._tasks)} tasks>"

    # ---

    def _register(self, function: Callable[P, R], options: TaskOptions) -> Task[P, R]:
        task: Task[P, R] = Task(self.producer, function, options)
        if (known := self._tasks.get(task.name)) is not None:
            where = f"{known.fn.__module__}.{known.fn.__qualname__}"
            raise ConfigError(f"task {task.name!r} is registered already, for {where}: give one of them another name=")
        self._tasks[task.name] = task
        self._by_name.forget()
        return task

    def _route_of(self, task: BoundTask[...] | str) -> Route:
        return self.producer.here(self._by_name.route(task) if isinstance(task, str) else cast(Route, task.route))

    def _decoder_of(self, task: str) -> PayloadDecoder | None:
        known = self._tasks.get(task)
        return known.decoder if known is not None else None

    def _keys(self, job: Job) -> QueueKeys:
        return queue_keys(self.config.namespace, job.queue)
