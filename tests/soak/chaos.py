"""What is done to workers, connections and the server, at random moments, and what of it can make a job run twice."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.process import Child, wait_stopped
from tests.support.proxy import Proxy
from tests.support.servers import Server


@dataclass
class Harm:
    """What happened: kinds with how often, and by process when it was killed or was stopped for about a lease or longer."""

    events: Counter[str] = field(default_factory=Counter)
    moments: list[tuple[int, str]] = field(default_factory=list)  # all of it in order: CLOCK_MONOTONIC ns, what
    killed: dict[int, int] = field(default_factory=dict)  # pid -> CLOCK_MONOTONIC ns
    stopped: dict[int, list[tuple[int, int]]] = field(default_factory=dict)


class Chaos:
    """Harms `workers`, a list that it keeps as long as it was. `lease` is in seconds."""

    def __init__(
        self, server: Server, proxy: Proxy, workers: list[Child], start: Callable[[], Child], *, lease: float, seed: int
    ) -> None:
        self._server, self._proxy, self._workers, self._start = server, proxy, workers, start
        self._lease = lease
        self._chance = random.Random(seed)
        self._asleep: dict[Child, tuple[float, int]] = {}  # when to wake it, since when it sleeps
        self.harm = Harm()

    def run(self, seconds: float) -> None:
        """Do harm for so long; then everything is awake and connected again."""
        events = (self.kill, self.kill, self.stop, self.stop, self.terminate, self.restart, self.cut, self.freeze)
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            self._wake(now)
            event = self._chance.choice(events)
            self.harm.events[event.__name__] += 1
            self._note(event.__name__)
            event()
            self._note(f"{event.__name__}, over")
            time.sleep(self._chance.uniform(0.2, self._lease))
        self._wake(float("inf"))

    def kill(self) -> None:
        """SIGKILL of a worker, another one starts."""
        victim = self._victim()
        if victim is not None:
            self._note(f"kill {victim.pid}")
            self._count(victim)
            victim.kill()
            self._replace(victim)

    def terminate(self) -> None:
        """SIGTERM of a worker, another one starts at once; it hands back what it has."""
        victim = self._victim()
        if victim is not None:
            self._note(f"terminate {victim.pid}")
            victim.send(signal.SIGTERM)
            self._replace(victim)

    def stop(self) -> None:
        """SIGSTOP of a worker, for up to two and a half leases."""
        victim = self._victim()
        if victim is not None:
            self._note(f"stop {victim.pid}")
            victim.send(signal.SIGSTOP)
            wait_stopped(victim.pid)
            now = time.monotonic()
            self._asleep[victim] = (now + self._chance.uniform(0.1, 2.5) * self._lease, time.monotonic_ns())

    def restart(self) -> None:
        """SIGKILL of the server, and up again with the data that it has acknowledged."""
        self._server.kill()
        time.sleep(self._chance.uniform(0, 0.5))
        self._server.restart()

    def cut(self) -> None:
        """All connections end at once."""
        self._proxy.cut()

    def freeze(self) -> None:
        """The server does nothing for a while, up to more than a lease."""
        self._server.pause()
        time.sleep(self._chance.uniform(0.1, 1.3) * self._lease)
        self._server.resume()

    def _victim(self) -> Child | None:
        awake = [worker for worker in self._workers if worker not in self._asleep]
        return self._chance.choice(awake) if awake else None

    def _replace(self, worker: Child) -> None:
        self._workers.remove(worker)
        self._workers.append(self._start())

    def _note(self, what: str) -> None:
        self.harm.moments.append((time.monotonic_ns(), what))

    def _count(self, victim: Child) -> None:
        self.harm.killed[victim.pid] = time.monotonic_ns()

    def _wake(self, now: float) -> None:
        for worker, (at, since) in list(self._asleep.items()):
            if at <= now:
                self._note(f"continue {worker.pid}")
                worker.send(signal.SIGCONT)
                self.harm.stopped.setdefault(worker.pid, []).append((since, time.monotonic_ns()))
                del self._asleep[worker]
