"""The laws of unique jobs under whatever may happen in any order: a stateful property test on a real Redis.

    python -m tests.unique.model --steps 10000 --seeds 20

It prints the seed of each run and, for a violation, the shortest way there that was found.
"""

import argparse
import uuid
from typing import Any

import hypothesis
import hypothesis.strategies as st
import redis as redis_py
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from fastq.broker.broker import Broker
from fastq.config import Config
from fastq.keys import QueueKeys
from tests.support.servers import Server
from tests.unique.world import KEYS, POLICIES, World

STEPS = 50  # of one example
WHICH = st.integers(0, 99)


class UniqueJobs(RuleBasedStateMachine):
    """Drives a World; `server` is set by whoever runs it."""

    server: Server
    broker: Broker
    client: redis_py.Redis

    @initialize(policies=st.sampled_from([*([one] for one in POLICIES), *[POLICIES] * len(POLICIES)]), workers=st.integers(1, 2))
    def begin(self, policies: list[Any], workers: int) -> None:
        self.policies = policies
        self.keys = QueueKeys(f"model-{uuid.uuid4().hex[:12]}", "q")
        self.world = World(self.broker, self.client, self.keys)
        for _ in range(workers):
            self.world.join()

    @rule(key=st.sampled_from(KEYS), which=WHICH, framed=st.booleans(), delay=st.sampled_from([0, 0, 0, 1000, 5000]))
    def enqueue(self, key: str, which: int, framed: bool, delay: int) -> None:
        self.world.enqueue(key, self.policies[which % len(self.policies)], framed=framed, delay=delay)

    @precondition(lambda self: self.world.workers)
    @rule(which=WHICH, entries=st.integers(1, 4))
    def fetch(self, which: int, entries: int) -> None:
        self.world.fetch(self._worker(which), entries)

    @precondition(lambda self: self._held(running=False))
    @rule(which=WHICH)
    def start(self, which: int) -> None:
        self.world.start(*self._pick(self._held(running=False), which))

    @precondition(lambda self: self._held(running=True))
    @rule(which=WHICH, how=st.sampled_from(["succeeded", "succeeded", "dropped", "cancelled", "retry", "retry", "dead"]))
    def end(self, which: int, how: str) -> None:
        worker, uid = self._pick(self._held(running=True), which)
        self.world.end(worker, uid, how)

    @precondition(lambda self: self._held())
    @rule(which=WHICH)
    def hand_back(self, which: int) -> None:
        self.world.hand_back(*self._pick(self._held(), which))

    @precondition(lambda self: self.world.workers)
    @rule(which=WHICH, beats=st.booleans())
    def tick_or_beat(self, which: int, beats: bool) -> None:
        (self.world.beat if beats else self.world.tick)(self._worker(which))

    @precondition(lambda self: self._held())
    @rule(which=WHICH, how=st.sampled_from(["killed", "vanished", "left"]))
    def lose_worker(self, which: int, how: str) -> None:
        worker, _ = self._pick(self._held(), which)
        if how == "left":
            self.world.leave(worker)
        else:
            self.world.kill(worker, seen=how == "killed")

    @precondition(lambda self: len(self.world.workers) < 2)
    @rule()
    def join(self) -> None:
        self.world.join()

    @precondition(lambda self: self.world.before.locks)
    @rule(which=WHICH)
    def evict(self, which: int) -> None:
        self.world.evict(self._pick(list(self.world.before.locks), which))

    @precondition(lambda self: self.world.before.jobs)
    @rule(which=WHICH)
    def cancel(self, which: int) -> None:
        self.world.cancel(self._pick(sorted(self.world.before.jobs), which))

    @precondition(lambda self: len(self.world.before.jobs) > 2)
    @rule()
    def purge(self) -> None:
        self.world.purge()

    @precondition(lambda self: self._dead())
    @rule(which=WHICH, again=st.sampled_from([True, True, False]))
    def replay_or_delete(self, which: int, again: bool) -> None:
        (self.world.replay if again else self.world.delete)(self._pick(self._dead(), which))

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "world"):
            with self._told():
                self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            try:
                if not self.world.broken:
                    with self._told():
                        self.world.drain()
            finally:
                keys = list(self.client.scan_iter(match=self.keys.prefix + b"*", count=1000))
                if keys:
                    self.client.unlink(*keys)

    def _held(self, running: bool | None = None) -> list[tuple[Any, bytes]]:
        """The jobs in the hands of workers."""
        return [
            (worker, uid)
            for worker in self.world.workers.values()
            for uid, job in sorted(worker.jobs.items())
            if running is None or job.running == running
        ]

    def _dead(self) -> list[bytes]:
        return sorted(uid for uid, (place, _) in self.world.before.jobs.items() if place == "dead")

    def _worker(self, which: int) -> Any:
        return self._pick(list(self.world.workers.values()), which)

    def _pick(self, some: list[Any], which: int) -> Any:
        return some[which % len(some)]

    def _told(self) -> "_Told":
        return _Told(self.world)


class _Told:
    """Adds to a violation what led to it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, AssertionError):
            self._world.broken = True
            error.add_note("\n".join(self._world.history))


def check(server: Server, *, steps: int, seed: int | None = None, shrink: bool = True) -> None:
    """Run so many steps. Raises AssertionError for a violation, with the steps that led to it."""
    UniqueJobs.client = server.client()
    UniqueJobs.broker = Broker(Config(server.url, "model"))
    settings = hypothesis.settings(
        max_examples=max(1, steps // STEPS),
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        print_blob=False,
        phases=[hypothesis.Phase.generate, *([hypothesis.Phase.shrink] if shrink else [])],
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    machine = UniqueJobs
    if seed is not None:
        machine = hypothesis.seed(seed)(type("UniqueJobs", (UniqueJobs,), {}))
    try:
        run_state_machine_as_test(machine, settings=settings)
    finally:
        UniqueJobs.broker.close()


def main() -> None:
    """Run it for long."""
    parser = argparse.ArgumentParser(description="Check the laws of unique jobs.")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--no-shrink", action="store_true", help="show the first violation as it was found")
    parser.add_argument("--server", default="redis7")
    options = parser.parse_args()
    with Server(options.server) as server:
        for seed in range(options.first, options.first + options.seeds):
            check(server, steps=options.steps, seed=seed, shrink=not options.no_shrink)
            print(f"seed {seed}: {options.steps} steps, no violation", flush=True)


if __name__ == "__main__":
    main()
