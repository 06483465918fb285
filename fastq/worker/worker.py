"""The worker: one process that runs jobs. It wires the services, watches over them, and ends in good order."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastq.broker import requests
from fastq.broker.health import health
from fastq.broker.requests import WorkerFenced
from fastq.broker.talk import ServerError
from fastq.config import DEFAULT_QUEUE, check_count, check_name, check_seconds
from fastq.errors import BrokerError, ConfigError
from fastq.keys import queue_keys
from fastq.worker import process_child
from fastq.worker.balance import Balance
from fastq.worker.deadlines import Deadlines
from fastq.worker.executor import Executor
from fastq.worker.fetcher import Fetcher
from fastq.worker.heart import Heart
from fastq.worker.meter import Meter
from fastq.worker.processes import Processes
from fastq.worker.safeguard import Safeguard
from fastq.worker.settler import FOR_EVER, Settler
from fastq.worker.shares import Shares
from fastq.worker.starter import Starter
from fastq.worker.threads import Threads
from fastq.worker.ticker import Ticker
from fastq.worker.watch import Watch
from fastq_ext.holding import Holding
from fastq_ext.runner import Runner, Slot

if TYPE_CHECKING:
    from fastq.app import FastQ

_log = logging.getLogger("fastq.worker")

CONCURRENCY = 100
GRACE = 25.0
STEP_EVERY = 1.0
BURST_HORIZON = 1.0  # seconds: a burst waits for what falls due within
AT_ONCE = 0.0  # a time that has long passed
LAST_CALLS = 5.0  # seconds for the last settling and leaving, when the server does not answer


class Desk:
    """A holding and the services that serve it alone."""

    def __init__(self, holding: Holding, settler: Settler, starter: Starter, ticker: Ticker) -> None:
        self.holding, self.settler, self.starter, self.ticker = holding, settler, starter, ticker
        self.tasks: list[asyncio.Task[None]] = []


class Worker:
    """Runs the jobs of an app's queues in this process.

    `queues` None: those of the app's tasks, and "default", in turn; a sequence: in strict order; a
    mapping: by these weights. `concurrency` jobs run at once.
    `burst`: end when nothing is left to do. `grace`: seconds that running jobs get to end after a signal. `name`: what its names
    in the queues begin with, and no other worker's do; None: host and process. `heart` beats for it; None: a process of its own.

    >>> app.worker(queues=["mail"], burst=True).run()  # doctest: +SKIP
    """

    # What the test kit's worker has others of (rehearsal.py).
    executor_type: type[Executor] = Executor
    heart_type: type[Heart] = Heart
    burst_horizon = BURST_HORIZON

    def __init__(
        self,
        app: FastQ,
        *,
        queues: Sequence[str] | Mapping[str, float] | None = None,
        concurrency: int = CONCURRENCY,
        burst: bool = False,
        grace: float = GRACE,
        name: str | None = None,
        heart: Heart | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._app = app
        self._config = app.config
        self._concurrency = check_count("concurrency", concurrency, least=1, most=10_000)
        self._grace = check_seconds("grace", grace)
        self._burst = burst
        self._queues = [check_name("queue", name) for name in dict.fromkeys(queues)] if queues is not None else None
        self._weights = _checked(queues) if isinstance(queues, Mapping) else None
        self._given_name = name
        self._desks: dict[str, Desk] = {}
        self._holdings: list[Holding] = []
        self._ending: asyncio.Event | None = None
        self._given_heart = heart
        self._meter = meter
        self._ends_by: float | None = None  # when running jobs have to have ended; None: nobody has asked for that
        self._successors: dict[bytes, str] = {}  # a name that was taken for dead -> the token of the one after it
        self._returning: set[asyncio.Task[None]] = set()
        self.finished = 0  # jobs whose turn ended here

    @property
    def queues(self) -> list[str]:
        """The queues that it serves, by the tasks that are registered so far."""
        if self._queues is not None:
            return self._queues
        return list(dict.fromkeys([*(task.queue for task in self._app.tasks.values()), DEFAULT_QUEUE]))

    def run(self) -> None:
        """Run until SIGTERM, SIGINT or `stop()`; a second signal ends at once. Raises BrokerError when Redis cannot be reached
        at the start."""
        from fastq.worker import loop  # uvloop is not there on every system

        # What was imported lives as long as the process: the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        # Replies and settle calls are lists of thousands that live for milliseconds; no cycle begins with them.
        gc.set_threshold(100_000, 10, 10)
        loop.run(self.arun())

    def stop(self) -> None:
        """End in good order, as SIGTERM does. For the event loop's own thread."""
        if self._ending is not None:
            self._ends_by = time.monotonic() + self._grace if self._ends_by is None else AT_ONCE
            self._ending.set()

    def retire(self) -> None:
        """Fetch no more, and end when all jobs have, however long they take: another worker has taken this one's place."""
        if self._ending is not None:
            self._ending.set()

    async def arun(self) -> None:
        """`run()` on the running event loop. Signals are taken over when it runs in the main thread."""
        if process_child.serving:
            raise RuntimeError(
                "this process runs single jobs for a worker, and importing their tasks has started another worker: put"
                ' what starts it under `if __name__ == "__main__":`'
            )
        loop = asyncio.get_running_loop()
        self._ending = asyncio.Event()
        self._app.import_tasks()
        broker = self._app.broker
        self._calls = broker.new_client()
        self._waits = broker.new_client()
        self._broker = broker
        self._name = self._given_name or host_and_process()
        threads, processes = Threads(loop), Processes()
        self._pools = (threads, processes)
        self._executor = self.executor_type(threads, processes, broker.clock.now_ms, self._app.middlewares)
        self._runner = Runner(
            loop,
            lost=self._executor.lost,
            failed=self._executor.failed,
            returned=self._executor.returned,
            on_room=self._on_room,
            stain=self._replace_slot,
        )
        self._runner.in_turn = self._queues is None or self._weights is not None
        self._heart = self._given_heart or self.heart_type(self._config)
        self._heart.on_fenced = self._on_fenced
        self._heart.on_beat = self._on_beat
        self._heart.on_retire = self.retire
        self._runner.start_until = self._heart.well_until  # also one that is stopped before its first beat starts nothing stale
        self._fetcher = Fetcher(
            self._calls,
            self._waits,
            self._runner,
            self._holdings,
            unsound=self._executor.unsound,
            woken=lambda holding: self._desks[holding.keys.queue].ticker.poke(),
            rejoin=self._rejoin,
            may_start=lambda: self._heart.well,
            lease=self._config.lease,
            shares=Shares(self._weights) if self._weights is not None else None,
        )
        self._deadlines = Deadlines(self._runner, self._executor.failed, lambda run: self._replace_slot(run.slot))
        self._safeguard = Safeguard(self._heart, self._runner, self._holdings, self._deadlines.tell)
        with _signals(loop, self.stop), Watch(loop, self._runner):
            try:
                async with self._app.lifespans.entered():
                    await self._serve()
            finally:
                if self._meter is not None:
                    self._meter.close()
                threads.close()
                await processes.close()
                self._calls.close()
                self._waits.close()

    # --- from start to end

    async def _serve(self) -> None:
        queues = self.queues
        # The first connection tells at once what is wrong with URL, password or version.
        await self._calls.call(requests.gate(queue_keys(self._config.namespace, queues[0])))
        services: list[asyncio.Task[None]] = []
        try:
            services.append(self._service("heart", self._heart.run))
            for warning in await self._calls.call(health()):
                _log.warning("%s", warning)
            await self._heart.ready.wait()
            # One name in all queues, so that one read can wait for jobs of any of them.
            token = secrets.token_hex(4)
            for queue in queues:
                await self._join(queue, token)
            for _ in range(self._concurrency):
                self._open_slot()
            fetching = self._service("fetcher", self._fetch)
            services += [
                self._service("deadlines", self._deadlines.run),
                self._service("balance", Balance(self._runner, self._holdings, self._pools, self._fetcher.given_back).run),
                self._service("steps", self._step),
                self._service("safeguard", self._safeguard.run),
            ]
            if self._burst:
                services.append(self._service("burst", self._watch_burst))
            _log.info("worker %s serves %s with %d slots", self._name, ", ".join(queues), self._concurrency)
            assert self._ending is not None
            await self._ending.wait()
            _log.info("worker %s ends: it fetches no more", self._name)
            self._fetcher.stop()
            while not fetching.done():
                self._waits.close()  # ends a wait for jobs; one whose connection is just being made needs another try
                await asyncio.wait([fetching], timeout=0.05)
            await _cancel(self._returning)
            await self._end_runs()
            await self._leave()
        finally:
            await _cancel([*services, *self._returning, *(task for desk in self._desks.values() for task in desk.tasks)])
            for slot in self._runner.slots:
                if slot.task is not None:
                    slot.task.cancel()  # unwaited: what is left in one has been given up
        self.finished = self._runner.finished
        _log.info("worker %s has ended after %d jobs", self._name, self.finished)

    async def _end_runs(self) -> None:
        """Hand back what has not started, let the rest end within the grace time, then cancel and hand back."""
        runner = self._runner
        for holding in self._holdings:
            holding.hand_back_asking()
            holding.hand_back(holding.ready, 64)
        runner.stopping = True
        runner.wake_all()
        for run in runner.runs():
            if run.waits:
                self._deadlines.tell(run, "shutdown")
        while runner.running and (self._ends_by is None or time.monotonic() < self._ends_by):
            await asyncio.sleep(0.01)
        for run in runner.runs():
            self._deadlines.tell(run, "shutdown")
        await self._runs_end(0.5, unless_hurried=True)
        for run in runner.runs():
            self._deadlines.insist(run)
        await self._runs_end(0.1)
        for run in runner.runs():
            self._deadlines.give_up(run)

    async def _runs_end(self, within: float, *, unless_hurried: bool = False) -> None:
        """Wait for the end of all runs, `within` seconds at most. `unless_hurried`: not after a second signal."""
        until = time.monotonic() + within
        while self._runner.running and time.monotonic() < until and not (unless_hurried and self._ends_by == AT_ONCE):
            await asyncio.sleep(0.01)

    async def _leave(self) -> None:
        for desk in self._desks.values():
            desk.settler.end()
        settling = [task for desk in self._desks.values() for task in desk.tasks[:1]]
        _, late = await asyncio.wait(settling, timeout=LAST_CALLS)
        if late:
            _log.error("the server does not answer: what could not be settled is repeated elsewhere")
            return
        for desk in self._desks.values():
            with contextlib.suppress(BrokerError, TimeoutError):
                async with asyncio.timeout(LAST_CALLS):
                    await self._take_out(desk.holding)

    async def _take_out(self, holding: Holding) -> None:
        more = True
        while more:
            request = requests.leave(holding.keys, holding.worker, died=False, max_crashes=self._config.max_crashes)
            _, more = await self._calls.call(request)
        self._heart.leave(holding.keys.queue, holding.worker.decode())

    # --- services

    def _service(self, name: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Run a service for as long as the worker lives: none of them can die quietly."""

        async def keep() -> None:
            pause = 0.1
            while True:
                begun = time.monotonic()
                try:
                    await run()
                    return
                except WorkerFenced:
                    raise
                except BrokerError as error:
                    _log.warning("%s: %s; trying again in %.1f s", name, error, pause)
                except Exception:
                    _log.exception("%s failed; it starts again in %.1f s", name, pause)
                pause = 0.1 if time.monotonic() - begun > 5 else min(pause * 2, 2.0)
                await asyncio.sleep(pause)

        return asyncio.create_task(keep(), name=f"fastq-{name}")

    async def _fetch(self) -> None:
        try:
            await self._fetcher.run()
        except BrokerError:
            for desk in list(self._desks.values()):
                with contextlib.suppress(WorkerFenced):
                    await self._fetcher.compare(desk.holding)
            raise

    async def _step(self) -> None:
        while True:
            self._heart.step(self._runner.finished)
            self._note()
            await asyncio.sleep(STEP_EVERY)

    def _note(self) -> None:
        if self._meter is not None and self._ending is not None:
            self._meter.step(self._runner, fetches=not self._ending.is_set(), well_until=self._heart.well_until)

    async def _watch_burst(self) -> None:
        while not (self._is_idle() and await self._finds_nothing()):
            await asyncio.sleep(0.02)
        self.stop()

    async def _finds_nothing(self) -> bool:
        """Whether the server, asked anew, has nothing to do either: a job that failed just now may be due again soon."""
        for desk in list(self._desks.values()):
            with contextlib.suppress(WorkerFenced):  # it comes back under a new name
                await desk.ticker.tick()
        await self._fetcher.look()
        for desk in list(self._desks.values()):
            await self._fetcher.compare(desk.holding)  # a job may be on its way to us by the read that waits
        return self._is_idle()

    def _is_idle(self) -> bool:
        runner = self._runner
        if not self._fetcher.found_nothing or runner.running or runner.ready:
            return False
        return all(
            not desk.holding.asking
            and not desk.holding.touched_any
            and not desk.holding.entries
            and (desk.ticker.due_in is None or desk.ticker.due_in > self.burst_horizon)
            for desk in self._desks.values()
        )

    # --- queues

    async def _join(self, queue: str, token: str) -> None:
        """Enter a queue under a name that nobody had before in it."""
        keys = queue_keys(self._config.namespace, queue)
        worker = f"{self._name}-{token}".encode()
        desk = self._desk(keys, worker)
        with contextlib.suppress(ServerError):  # the list is for operators, and a server without memory refuses it
            await self._calls.call(requests.note_queue(keys, self._broker.clock.now_ms()))
        again = await self._calls.call(requests.join(keys, worker), patience=FOR_EVER)
        if again:
            _log.warning("queue=%s its group had been lost: %d jobs were added anew", queue, again)
        self._heart.join(queue, worker.decode())
        self._desks[queue] = desk
        self._holdings.append(desk.holding)
        self._runner.holdings.append(desk.holding)
        if not self._runner.in_turn:  # one that was left and entered again has its old place
            self._runner.holdings.sort(key=lambda holding: self.queues.index(holding.keys.queue))
        desk.tasks = [
            self._service(f"settler of {queue}", desk.settler.run),
            self._service(f"starter of {queue}", desk.starter.run),
            self._service(f"ticker of {queue}", desk.ticker.run),
        ]
        for task in desk.tasks:
            task.add_done_callback(functools.partial(self._on_service_end, desk.holding))

    def _desk(self, keys: Any, worker: bytes) -> Desk:
        holding = Holding(keys, worker, lambda: settler.touch(), lambda: starter.ask())
        holding.heart, holding.now_ms = self._heart, self._broker.clock.now_ms
        settler = Settler(self._calls, holding, self._on_room)
        for task in self._app.tasks.values():
            line = self._executor.line(task)
            holding.add_line(line)
            if self._meter is not None:
                self._meter.measure(keys.queue, line)
        if self._meter is not None:
            self._meter.set_clock(holding)
            settler.on_settled = functools.partial(self._meter.settled, keys.queue)
        starter = Starter(
            self._calls,
            self._runner,
            holding,
            self._broker.clock.now_ms,
            round(self._config.lease * 1000),
            may_start=lambda: self._heart.well,
        )
        ticker = Ticker(
            self._calls,
            holding,
            self._config,
            compare=self._fetcher.compare,
            gate=self._fetcher.gate,
            cancel=self._deadlines.cancel,
        )
        return Desk(holding, settler, starter, ticker)

    def _on_service_end(self, holding: Holding, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and isinstance(task.exception(), WorkerFenced):
            self._drop(holding)

    def _on_beat(self) -> None:
        self._runner.start_until = self._heart.well_until
        self._runner.feed()

    def _on_fenced(self, queue: str, worker: str) -> None:
        desk = self._desks.get(queue)
        if desk is not None and desk.holding.worker.decode() == worker:
            self._drop(desk.holding)

    def _drop(self, holding: Holding) -> None:
        """The queue has given to others what we held of it: let go of it, and come back under a new name."""
        if holding.dropped:
            return
        holding.dropped = True
        queue = holding.keys.queue
        # The same in all queues that took it for dead, so that one read can wait for all of them again.
        token = self._successors.setdefault(holding.worker, secrets.token_hex(4))
        _log.error("queue=%s this worker was taken for dead; its jobs are others' now", queue)
        desk = self._desks[queue]
        self._holdings.remove(holding)
        self._runner.holdings.remove(holding)
        self._safeguard.stop_renewing([holding])
        for run in self._runner.runs():
            if run.holding is holding:
                run.ended = True
        for task in desk.tasks:
            task.cancel()
        self._heart.leave(queue, holding.worker.decode())
        if self._ending is not None and not self._ending.is_set():
            returning = self._service(f"return to {queue}", lambda: self._join(queue, token))
            self._returning.add(returning)
            returning.add_done_callback(self._returning.discard)

    async def _rejoin(self, holding: Holding) -> None:
        """The group of a queue is gone: make it again and go on."""
        _log.warning("queue=%s its group is gone; it is made again", holding.keys.queue)
        await self._calls.call(requests.join(holding.keys, holding.worker))
        self._heart.join(holding.keys.queue, holding.worker.decode())

    # --- slots

    def _open_slot(self) -> None:
        slot = self._runner.new_slot()

        async def serve() -> None:
            await slot

        slot.task = asyncio.create_task(serve(), name="fastq-slot")
        slot.task.add_done_callback(lambda task: self._on_slot_end(slot, task))

    def _on_slot_end(self, slot: Slot, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is None or self._runner.stopping:
            return
        _log.error("a slot failed; it is replaced", exc_info=task.exception())
        self._replace_slot(slot)

    def _replace_slot(self, slot: Slot) -> None:
        """Its task cannot be used any more."""
        if slot in self._runner.slots:
            self._runner.remove_slot(slot)
            if not self._runner.stopping:
                self._open_slot()

    def _on_room(self) -> None:
        self._fetcher.room()

def _checked(weights: Mapping[str, float]) -> Mapping[str, float]:
    for queue, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0.001 <= weight <= 1_000_000:
            raise ConfigError(f"the weight of queue {queue!r} is {weight!r}: give a number from 0.001 to 1,000,000")
    return dict(weights)


def host_and_process() -> str:
    """What tells this process from all others."""
    return f"{socket.gethostname()[:40]}-{os.getpid()}".replace(" ", "_")


class _signals(contextlib.AbstractContextManager[None]):
    """SIGTERM and SIGINT call `stop`, where signals can be had (the main thread)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        self._loop, self._stop = loop, stop
        self._taken: list[signal.Signals] = []

    def __enter__(self) -> None:
        for sig in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(ValueError, NotImplementedError, RuntimeError):
                self._loop.add_signal_handler(sig, self._stop)
                self._taken.append(sig)

    def __exit__(self, *_: object) -> None:
        for sig in self._taken:
            self._loop.remove_signal_handler(sig)


async def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
