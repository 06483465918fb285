"""The laws of unique jobs under whatever may happen in any order: a stateful property test on a real Redis.

    python -m tests.unique.model --steps 10000 --seeds 20

It prints the seed of each run and, for a violation, the shortest way there that was found.
"""

import argparse
import uuid
from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import redis as redis_py
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from fastq.broker.broker import Broker
from fastq.config import Config
from fastq.keys import QueueKeys
from tests.support.servers import Server
from tests.unique.world import KEYS, POLICIES, World

STEPS = 50  # of one example


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

    @rule(draw=st.integers(0, 2**16), which=st.integers(0, 2**16), detail=st.integers(0, 2**16))
    def step(self, draw: int, which: int, detail: int) -> None:
        """One of the things that can happen now; the likely ones are those that bring jobs on their way."""
        possible = [(weight, act, some) for weight, act, some in self._possible() if some]
        draw %= sum(weight for weight, _, _ in possible)
        for weight, act, some in possible:
            if draw < weight:
                act(some[which % len(some)], detail)
                return
            draw -= weight

    def _possible(self) -> list[tuple[int, Callable[[Any, int], Any], list[Any]]]:
        """What can happen: how likely it is, what does it, and to what; impossible where there is nothing to do it to."""
        world, before = self.world, self.world.before
        workers = list(world.workers.values())
        held = [(worker, uid) for worker in workers for uid in sorted(worker.jobs)]
        running = [(worker, uid) for worker, uid in held if worker.jobs[uid].running]
        idle = [(worker, uid) for worker, uid in held if not worker.jobs[uid].running]
        dead = sorted(uid for uid, (place, _) in before.jobs.items() if place == "dead")
        return [
            (14, self._enqueue, list(KEYS)),
            (15, lambda worker, detail: world.fetch(worker, 1 + detail % 4), workers),
            (40, lambda job, detail: world.start(*job), idle),
            (12, self._end, running),
            (6, lambda worker, detail: (world.beat if detail % 3 else world.tick)(worker), workers),
            (4, lambda key, detail: world.evict(key), list(before.locks)),
            (2, lambda job, detail: world.hand_back(*job), held),
            (5, self._lose, sorted({worker.name: worker for worker, _ in running}.values(), key=lambda one: one.name)),
            (1, self._lose, workers),
            (2, lambda uid, detail: world.cancel(uid), sorted(before.jobs)),
            (1, lambda uids, detail: world.purge(), [before.jobs] if len(before.jobs) > 2 else []),
            (3, lambda uid, detail: (world.replay if detail % 3 else world.delete)(uid), dead),
            (30 if len(workers) < 2 else 0, lambda nothing, detail: world.join(), [None]),
        ]

    def _enqueue(self, key: str, detail: int) -> None:
        delay = (0, 0, 0, 1000)[detail // 2 % 4]
        self.world.enqueue(key, self.policies[detail // 8 % len(self.policies)], framed=detail % 2 == 0, delay=delay)

    def _end(self, job: Any, detail: int) -> None:
        how = ("succeeded", "succeeded", "succeeded", "dropped", "cancelled", "retry", "retry", "dead")[detail % 8]
        self.world.end(*job, how)

    def _lose(self, worker: Any, detail: int) -> None:
        if detail % 3:
            self.world.kill(worker, seen=detail % 3 == 1)
        else:
            self.world.leave(worker)

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
