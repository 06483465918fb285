"""The fleet itself: a number of places, in each of which a child is kept."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path

from fastq.errors import FastQError
from fastq.fleet.beats import Beats
from fastq.fleet.child import Child
from fastq.fleet.launcher import Launcher
from fastq.fleet.lifeline import MARGIN
from fastq.fleet.limits import Limits
from fastq.fleet.orphans import reap
from fastq.fleet.reload import watch
from fastq.worker.heart import WATCHDOG, stopped

_log = logging.getLogger("fastq.fleet")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds until a child that died is replaced
LONGEST_GAP = 1.0  # of one that had served: it is missed
SOUND_AFTER = 10.0  # seconds of life after which a death is not taken for the continuation of the last one
AT_ONCE = 2.0  # seconds that a child gets which was told to end at once
LOOK_EVERY = 0.5  # seconds between two looks at all children
ASLEEP = 5.0  # seconds without a look after which it was this process that slept, and not its children
SERVES_WITHIN = 300.0  # seconds that a successor may take until it serves
NEXT_TRY = 30.0  # seconds until a child that could not be replaced is worn out again
# A crash loop: so many lives in vain one after the other, for each place. One that ended before it served counts more: what
# jobs do to their workers is bounded (`max_crashes`), what a program does at its start is not.
MOST_IN_VAIN = 20
NEVER_SERVED, SERVED_IN_VAIN = 4, 1


class FleetFailed(FastQError):
    """The children of a fleet die as fast as they are started."""


class Place:
    """One place in the fleet. `worn`: another child is to take it."""

    def __init__(self) -> None:
        self.child: Child | None = None
        self.worn = asyncio.Event()
        self.why = ""
        self.not_before = 0.0  # when it may be worn out next

    def wear_out(self, why: str) -> None:
        """Have its child replaced."""
        self.why = why
        self.worn.set()


class Fleet:
    """Keeps `processes` workers running until `stop()`.

    `command` starts one worker (see `Launcher`). `grace` is the workers' own, in seconds. `burst`: a worker that ended in good
    order is not replaced, and the fleet ends with the last one. `limits` say when a worker is replaced although it is well;
    `watchdog` is the time in seconds after which one whose event loop makes no step is killed. `preload`: import the program
    once, before forking. `reload`: a folder whose changes replace all workers. `env` adds to the environment, `log` is a file for
    what the workers write (None: where this process writes).

    >>> Fleet([sys.executable, "-m", "fastq.cli", "worker", "shop"], processes=2).run()  # doctest: +SKIP
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        processes: int,
        grace: float = 25.0,
        burst: bool = False,
        limits: Limits | None = None,
        watchdog: float = WATCHDOG,
        preload: bool = False,
        reload: Path | None = None,
        env: Mapping[str, str] | None = None,
        log: int | None = None,
    ) -> None:
        self._grace, self._burst, self._watchdog = grace, burst, watchdog
        self._limits = limits or Limits()
        self._reload = reload
        self._launcher = Launcher(command, preload=preload, env=env, log=log)
        self._children: set[Child] = set()
        self._beats = Beats(self._children, self._may_live)
        self._places = [Place() for _ in range(processes)]
        self._rolling = asyncio.Lock()  # one child at a time is replaced that is well
        self._leaving: set[Child] = set()  # those whose place is another's
        self._stopping = asyncio.Event()
        self._in_vain = 0
        self._failed = False
        self.started: list[int] = []  # every worker process that was started so far
        self.deaths = 0  # children that ended before they should

    @property
    def pids(self) -> list[int]:
        """The worker processes that run now."""
        return [child.pid for child in self._children]

    def run(self) -> None:
        """Keep the children running until all have ended.

        SIGTERM and SIGINT stop them, a second one at once; SIGHUP replaces them, one after the other.
        Raises FleetFailed when they die as fast as they are started.
        """
        asyncio.run(self._run_until_signalled())

    async def _run_until_signalled(self) -> None:
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self.renew)
        await self.arun()

    async def arun(self) -> None:
        """`run()` on the running event loop, and without the signals. Cancelling it ends the children at once."""
        try:
            async with asyncio.TaskGroup() as upkeep:
                services = [upkeep.create_task(self._beats.run()), upkeep.create_task(self._look())]
                if self._reload is not None:
                    services.append(upkeep.create_task(watch(self._reload, self.renew)))
                async with asyncio.TaskGroup() as places:
                    for place in self._places:
                        places.create_task(self._keep(place, places))
                for service in services:
                    service.cancel()
        finally:
            for child in list(self._children):  # it was cancelled
                child.kill()
                await child.ended.wait()
            self._beats.close()
            await self._launcher.close()
        if self._failed:
            raise FleetFailed("the worker processes end as soon as they are started; their last words are above")

    def stop(self) -> None:
        """End all children in good order, as SIGTERM does; a second call ends them at once. For the loop's thread."""
        patience = AT_ONCE if self._stopping.is_set() else self._grace + MARGIN
        self._stopping.set()
        for child in self._children:
            child.send(signal.SIGTERM)
        asyncio.get_running_loop().call_later(patience, self._kill)

    def renew(self) -> None:
        """Replace all children, one after the other, by such that run the program as it is now."""
        _log.info("all worker processes are replaced, one after the other")
        self._launcher.renew()
        for place in self._places:
            place.wear_out("is to run new code")

    def _kill(self) -> None:
        for child in self._children:
            _log.error("worker process %d does not end: it is killed", child.pid)
            child.kill()

    # --- places

    async def _keep(self, place: Place, group: asyncio.TaskGroup) -> None:
        """Keep a child in a place until the fleet is to end."""
        place.child = child = await self._start()
        pause = FIRST_PAUSE
        while True:
            if self._stopping.is_set():
                place.worn.clear()
            await _first(child.ended.wait(), place.worn.wait())
            if not child.ended.is_set():
                place.child = child = await self._replace(place, child, group)
                continue
            in_order = await self._is_over(child)
            if self._stopping.is_set() or (in_order and self._burst):
                return
            longest = LONGEST_GAP if child.serves.is_set() else LONGEST_PAUSE
            pause = FIRST_PAUSE if time.monotonic() - child.begun > SOUND_AFTER else min(2 * pause, longest)
            self._mourn(child, pause, in_order=in_order)
            await _first(asyncio.sleep(pause), self._stopping.wait())
            if self._stopping.is_set():
                return
            place.worn.clear()
            place.child = child = await self._start()

    async def _start(self) -> Child:
        child = await Child.start(self._launcher.launch, self._beats.poke)
        self._children.add(child)
        self.started.append(child.pid)
        if self._stopping.is_set():
            child.send(signal.SIGTERM)
        return child

    async def _is_over(self, child: Child) -> bool:
        """See to what a child has left behind. Returns whether that was nothing, as with one that ended in good order.

        (A job can end its process with any exit code.)
        """
        self._children.discard(child)
        self._leaving.discard(child)
        in_order = child.code == 0 and not child.names
        await self._beats.bring_back(child, died=not self._stopping.is_set())
        return in_order

    def _mourn(self, child: Child, pause: float, *, in_order: bool) -> None:
        self.deaths += 1
        ended = "ended in good order" if in_order else _how_it_ended(child.code)
        _log.error("worker process %d %s; another one starts in %.1f s", child.pid, ended, pause)
        if not child.serves.is_set():
            self._in_vain += NEVER_SERVED
        elif child.finished or time.monotonic() - child.begun > SOUND_AFTER:
            self._in_vain = 0
        else:
            self._in_vain += SERVED_IN_VAIN
        others_serve = any(other.serves.is_set() for other in self._children)
        if self._in_vain >= MOST_IN_VAIN * len(self._places) and not others_serve:
            self._failed = True
            self.stop()

    # --- replacing those that are well

    async def _replace(self, place: Place, child: Child, group: asyncio.TaskGroup) -> Child:
        """Have another child serve before this one serves no more. Returns the one that has the place from here on."""
        async with self._rolling:
            while len(self._leaving) >= len(self._places):  # no more at once: they take memory for as long as their jobs last
                await _first(asyncio.sleep(LOOK_EVERY), child.ended.wait(), self._stopping.wait())
                if child.ended.is_set() or self._stopping.is_set():
                    break
            if child.ended.is_set() or self._stopping.is_set() or not place.worn.is_set():
                return child  # nothing to replace, or the new code was found not to start meanwhile
            place.worn.clear()
            _log.info("worker process %d %s: another one takes its place", child.pid, place.why)
            successor = await self._start()
            waits = (successor.serves.wait(), successor.ended.wait(), self._stopping.wait(), child.ended.wait())
            await _first(*waits, asyncio.sleep(SERVES_WITHIN))
            if not successor.serves.is_set() and not child.ended.is_set() and not self._stopping.is_set():
                _log.error("worker process %d does not serve: %d goes on in its place", successor.pid, child.pid)
                for other in self._places:  # the same would befall them
                    other.worn.clear()
                    other.not_before = time.monotonic() + NEXT_TRY
                successor.kill()
                group.create_task(self._see_off(successor))
                return child
        if not self._stopping.is_set():
            child.retire()
        self._leaving.add(child)
        group.create_task(self._see_off(child))
        return successor

    async def _see_off(self, child: Child) -> None:
        await child.ended.wait()
        await self._is_over(child)

    # --- looking after the children

    async def _look(self) -> None:
        looked = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_EVERY)
            now = time.monotonic()
            if now - looked > ASLEEP:
                self._forgive(now)
            looked = now
            for child in self._children:
                if self._is_stuck(child):
                    _log.error("worker process %d has made no step for %.0f s: it is killed", child.pid, self._watchdog)
                    child.kill()
            for place in self._places:
                self._judge(place, now)
            if os.getpid() == 1 and (helpers := self._launcher.pids) is not None:
                reap({*helpers, *self.pids})

    def _judge(self, place: Place, now: float) -> None:
        child = place.child
        if child is None or not child.serves.is_set() or place.worn.is_set() or now < place.not_before:
            return
        if why := self._limits.reached_by(child):
            place.wear_out(why)

    def _forgive(self, now: float) -> None:
        """Nobody was heard while this process slept."""
        for child in self._children:
            if child.stepped is not None:
                child.stepped = now

    def _is_stuck(self, child: Child) -> bool:
        return child.stepped is not None and time.monotonic() - child.stepped > self._watchdog

    def _may_live(self, child: Child) -> bool:
        """Whether to beat for it."""
        return not self._is_stuck(child) and not stopped(child.pid)


async def _first(*waits: Awaitable[object]) -> None:
    """Wait for the first of these and let go of the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    name = next((known.name for known in signal.Signals if known == -code), f"signal {-code}")
    return f"was ended by {name}"
