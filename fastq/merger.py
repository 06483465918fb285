"""Concurrent async enqueues: those of one tick of the event loop share script calls, and the frames in them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fastq.broker.requests import Refusal, Request
from fastq.bulk import Gathering
from fastq.errors import BrokerError
from fastq.route import Encoded, Route

MOST = 64  # jobs in a call, which is a frame: the server works on them while the next are encoded and earlier callers told

Send = Callable[[Request[list[Refusal]]], Awaitable[list[Refusal]]]
Waiter = asyncio.Future["Refusal | None"]


class Merger:
    """Merges the enqueues of one event loop.

    A job is encoded and checked before it comes here, so a bad call harms nobody else. Whoever is cancelled stops
    waiting; its job goes its way.
    """

    def __init__(self, send: Send, max_queue: int | None) -> None:
        # It does not hold its loop: whoever keeps mergers by their loops would keep the loops for ever.
        self._send = send
        self._max_queue = max_queue
        self._open: dict[str, tuple[Gathering, list[Waiter]]] = {}
        self._under_way: set[asyncio.Task[None]] = set()  # the loop itself keeps tasks weakly

    def enqueue(self, route: Route, job: Encoded, now_ms: int) -> Waiter:
        """Take a job into the next call of its queue. The future brings its refusal, or None, or the call's error."""
        loop = asyncio.get_running_loop()
        batch = self._open.get(route.queue)
        if batch is None:
            batch = self._open[route.queue] = (Gathering(route.keys), [])
            loop.call_soon(self._flush, route.queue, batch)
        gathering, waiters = batch
        waiter: Waiter = loop.create_future()
        gathering.add(len(waiters), route, job, now_ms)
        waiters.append(waiter)
        if gathering.full or len(waiters) == MOST:
            self._flush(route.queue, batch)
        return waiter

    def _flush(self, queue: str, batch: tuple[Gathering, list[Waiter]]) -> None:
        if self._open.get(queue) is not batch:
            return  # it was full and has left already
        del self._open[queue]
        task = asyncio.get_running_loop().create_task(self._call(*batch))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _call(self, gathering: Gathering, waiters: list[Waiter]) -> None:
        try:
            refusals = await self._send(gathering.take().request(self._max_queue))
        except asyncio.CancelledError:  # the loop is being shut down
            for waiter in waiters:
                waiter.cancel()
            raise
        except Exception as error:
            if isinstance(error, BrokerError) and len(waiters) > 1:
                error.lane = None  # it is that of the call as a whole, which none of its jobs can repeat
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(_own_copy(error))
        else:
            outcomes: list[Refusal | None] = [None] * len(waiters)
            for refusal in refusals:
                outcomes[refusal.index] = refusal
            for waiter, outcome in zip(waiters, outcomes, strict=True):
                if not waiter.done():
                    waiter.set_result(outcome)


def _own_copy(error: Exception) -> Exception:
    """The error again: raised in several tasks at once, one instance would gather the tracebacks of all."""
    own = type(error).__new__(type(error), *error.args)  # copy.copy() calls __init__, which may want more than args
    own.__dict__.update(error.__dict__)
    own.__cause__, own.__suppress_context__ = error.__cause__, error.__suppress_context__
    return own
