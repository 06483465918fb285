"""The locks of unique jobs, to look at and to release by hand."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastq.broker import requests
from fastq.broker.broker import Broker
from fastq.errors import UniqueConfigError
from fastq.job import uid_string
from fastq.keys import QueueKeys
from fastq.route import Route
from fastq.task import BoundTask

Task = BoundTask[Any]


@dataclass(frozen=True, slots=True)
class LockInfo:
    """A lock that is held: its key, the uid and state of the job that holds it, and the seconds left."""

    key: str
    job_uid: str
    state: str
    expires_in: float


class Locks:
    """`app.locks`. A call is given as to `enqueue`; a task with other options as `task.using(...)`.

    >>> app.locks.get(send_email, "o-1")  # doctest: +SKIP
    LockInfo(key='shop.send_email:o-1', job_uid='0193...', state='waiting', expires_in=59.2)
    """

    def __init__(self, broker: Broker, route_of: Callable[[Task | str], Route]) -> None:
        self._broker = broker
        self._route_of = route_of

    def get(self, task: Task | str, /, *args: Any, **kwargs: Any) -> LockInfo | None:
        """The lock of this call, or None if it is free. Raises UniqueConfigError for a task that is not unique."""
        keys, lock_key = self._place(task, args, kwargs)
        return _info(lock_key, self._broker.call(requests.locks_get(keys, lock_key)))

    async def aget(self, task: Task | str, /, *args: Any, **kwargs: Any) -> LockInfo | None:
        """`get()` for async code."""
        keys, lock_key = self._place(task, args, kwargs)
        return _info(lock_key, await self._broker.acall(requests.locks_get(keys, lock_key)))

    def release(self, task: Task | str, /, *args: Any, **kwargs: Any) -> bool:
        """Free the lock of this call, whoever holds it; whether there was one."""
        return self._broker.call(requests.locks_release(*self._place(task, args, kwargs)))

    async def arelease(self, task: Task | str, /, *args: Any, **kwargs: Any) -> bool:
        """`release()` for async code."""
        return await self._broker.acall(requests.locks_release(*self._place(task, args, kwargs)))

    def _place(self, task: Task | str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[QueueKeys, bytes]:
        route = self._route_of(task)
        if route.key_of is None:
            raise UniqueConfigError(f"task {route.task!r} is not unique, so its jobs have no locks")
        return route.keys, route.key_of(args, kwargs)


def _info(lock_key: bytes, lock: requests.Lock | None) -> LockInfo | None:
    if lock is None:
        return None
    return LockInfo(lock_key.decode(), uid_string(lock.uid), lock.state, lock.expires_in)
