"""The locks of unique jobs, to look at, to count and to release by hand."""
from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import unquote

from fastq.broker import requests
from fastq.broker.broker import Broker
from fastq.errors import UniqueConfigError
from fastq.job import uid_string
from fastq.keys import QueueKeys
from fastq.route import Route
from fastq.task import BoundTask
from fastq.unique import lock_prefix

T = TypeVar("T")
Task = BoundTask[...]
Steps: TypeAlias = Generator["requests.Request[Any]", Any, T]

LOOKED_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class LockInfo:
    """A lock that is held.

    `task` and `key` say whose it is; `job_uid` and `state` who holds it, `age` how many seconds ago that job was enqueued, and
    `expires_in` how many the lock lives on. The state is scheduled, waiting, running, retrying, dead, or "ended" for a lock that
    outlives its job by until="ttl". A job with until="done" or "success" that has neither `renew` nor "replace" or "rerun" starts
    without telling anyone: "waiting" may mean running then.
    """

    task: str
    key: str
    job_uid: str
    state: str
    age: float
    expires_in: float


LockInfos: TypeAlias = list[LockInfo]  # `Locks` has a `list` of its own


class LockCounts(NamedTuple):
    """How often the locks of a task made a difference in a queue, ever.

    Calls that were `refused` (also for a `job_id` in use), `skipped`, that `replaced` what waited or were left to `rerun`; and
    locks `lost`: a job ended and its lock had expired or was another's.
    """

    refused: int
    skipped: int
    replaced: int
    rerun: int
    lost: int


class Locks:
    """`app.locks`. A call is given as to `enqueue`; a task with other options as `task.using(...)`.

    >>> app.locks.get(send_email, "o-1")  # doctest: +SKIP
    LockInfo(task='shop.send_email', key='o-1', job_uid='0193...', state='waiting', age=0.8, expires_in=59.2)
    """

    def __init__(self, broker: Broker, route_of: Callable[[Task | str], Route]) -> None:
        self._broker = broker
        self._route_of = route_of

    def get(self, task: Task | str, /, *args: Any, **kwargs: Any) -> LockInfo | None:
        """The lock of this call, or None if it is free. Raises UniqueConfigError for a task that is not unique."""
        return self._broker.run(self._get(task, args, kwargs))

    async def aget(self, task: Task | str, /, *args: Any, **kwargs: Any) -> LockInfo | None:
        """`get()` for async code."""
        return await self._broker.arun(self._get(task, args, kwargs))

    def list(self, task: Task | str, /, *, limit: int = 1000) -> LockInfos:
        """Up to `limit` of the locks of a task that are held in its queue, in no order.

        They are looked for page by page among all keys of the database, so that the server is never held up; in a large one
        this takes its time.
        """
        return self._broker.run(self._list(task, limit))

    async def alist(self, task: Task | str, /, *, limit: int = 1000) -> LockInfos:
        """`list()` for async code."""
        return await self._broker.arun(self._list(task, limit))

    def release(self, task: Task | str, /, *args: Any, **kwargs: Any) -> bool:
        """Free the lock of this call, whoever holds it; whether there was one.

        The job that had it goes on. If it runs under `renew`, its worker takes the lock again within a second, unless another
        call was faster, whose job then waits for the end of this one.
        """
        return self._broker.call(requests.locks_release(*self._place(task, args, kwargs)))

    async def arelease(self, task: Task | str, /, *args: Any, **kwargs: Any) -> bool:
        """`release()` for async code."""
        return await self._broker.acall(requests.locks_release(*self._place(task, args, kwargs)))

    def counts(self, task: Task | str, /) -> LockCounts:
        """How often the locks of a task made a difference in its queue."""
        return LockCounts(*self._broker.call(self._counts(task)))

    async def acounts(self, task: Task | str, /) -> LockCounts:
        """`counts()` for async code."""
        return LockCounts(*await self._broker.acall(self._counts(task)))

    # ---

    def _get(self, task: Task | str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps[LockInfo | None]:
        keys, lock_key = self._place(task, args, kwargs)
        [lock] = yield requests.locks_look(keys, [lock_key])
        return _info(lock_key, lock, self._broker.clock.now_ms()) if lock is not None else None

    def _list(self, task: Task | str, limit: int) -> Steps[Any]:
        route = self._route_of(task)
        found: dict[bytes, LockInfo] = {}
        cursor, done = 0, False
        while not done and len(found) < limit:
            cursor, lock_keys = yield requests.locks_page(route.keys, lock_prefix(route.task), cursor)
            done = cursor == 0
            for first in range(0, len(lock_keys), LOOKED_AT_ONCE):
                some = lock_keys[first : first + LOOKED_AT_ONCE]
                locks = yield requests.locks_look(route.keys, some)
                now = self._broker.clock.now_ms()
                found.update((key, _info(key, lock, now)) for key, lock in zip(some, locks, strict=True) if lock is not None)
        return [*found.values()][:limit]

    def _counts(self, task: Task | str) -> requests.Request[Any]:
        route = self._route_of(task)
        return requests.lock_counts(route.keys, route.task)

    def _place(self, task: Task | str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[QueueKeys, bytes]:
        route = self._route_of(task)
        if route.key_of is None:
            raise UniqueConfigError(f"task {route.task!r} is not unique, so its jobs have no locks")
        return route.keys, route.key_of(args, kwargs)


def _info(lock_key: bytes, lock: requests.Lock, now_ms: int) -> LockInfo:
    task, _, key = lock_key.decode().partition(":")
    enqueued_ms = int.from_bytes(lock.uid[:6], "big")  # a UUIDv7 begins with its time
    age = max(0, now_ms - enqueued_ms) / 1000
    return LockInfo(unquote(task), key, uid_string(lock.uid), lock.state, age, lock.expires_in)
