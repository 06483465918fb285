"""A queue of unique jobs whose workers are played by the test, request by request, and the laws that hold after every step.

Nothing waits or sleeps here: a worker's calls are made one by one in any order, locks expire when they are deleted, and the clock
stands still until it is moved.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import redis

from fastq.broker import requests
from fastq.broker.broker import Broker
from fastq.broker.requests import Asked
from fastq.codec import Frame, Message
from fastq.keys import QueueKeys
from fastq.worker.report import Report
from tests.support import builders
from tests.support.builders import head, label

LEASE = 10_000
DAY = 86_400_000
TTL = 10 * DAY
STREAMS = (b"stream", b"front", b"suspects")
MAX_CRASHES = 3

Policy = tuple[str, str, bool]  # until, on_conflict, renew
POLICIES: list[Policy] = [
    *((until, how, renew) for until in ("done", "success") for how in builders.ON_CONFLICT for renew in (False, True)),
    *((until, how, False) for until in ("start", "ttl") for how in ("raise", "skip")),
]


def asks(message: Message) -> bool:
    """Whether a worker asks before it starts this job, the queue being open (fastq_ext/runner.pyx)."""
    return message.policy & 3 == 2 or message.policy & 20 != 0 or message.attempt > 1


def payload(raw: bytes) -> int:
    """The number that a job carries: that of the call whose arguments it has."""
    number: int = msgspec.msgpack.decode(Message(raw).payload)[0][0]
    return number


@dataclass
class Call:
    """An enqueue: its number is its argument."""

    number: int
    key: str
    policy: Policy
    step: int
    outcome: str  # "enqueued", or what came of it under a lock that was held

    @property
    def supersedes(self) -> bool:
        """Whether its arguments take the place of older ones."""
        return self.policy[1] in ("replace", "rerun")


@dataclass(frozen=True)
class Sight:
    """A run that saw the arguments of a call, by its start, or a job that was taken out with them."""

    key: str
    number: int
    step: int


@dataclass
class Job:
    """A job in a worker's hands."""

    stream: bytes
    entry: bytes
    place: int
    raw: bytes
    running: bool = False
    changed: bool = False
    began: int = 0  # the step in which it started

    @property
    def message(self) -> Message:
        return Message(self.raw)


@dataclass
class Worker:
    """What a worker knows."""

    name: bytes
    jobs: dict[bytes, Job] = field(default_factory=dict)
    entries: dict[bytes, tuple[bytes, int, int]] = field(default_factory=dict)  # id -> stream, jobs, settled places
    gate: bool = False
    starts: int = 0
    calls: int = 0


@dataclass
class Snapshot:
    """What Redis holds: where each job is, and who has which lock in which state."""

    jobs: dict[bytes, tuple[str, bytes]]  # uid -> place, message
    locks: dict[str, tuple[bytes, str]]  # key -> owner, state byte
    pending: dict[bytes, bytes]
    handed: dict[bytes, bytes]
    running: dict[bytes, bytes]


class World:
    """The queue, its producers and its workers. Every method but `check` and `drain` is one step."""

    def __init__(self, broker: Broker, client: redis.Redis, keys: QueueKeys) -> None:
        self.broker, self.client, self.keys = broker, client, keys
        self.now = builders.NOW
        self.step = 0
        self.workers: dict[bytes, Worker] = {}
        self.calls: list[Call] = []
        self.runs: list[Sight] = []
        self.removed: list[Sight] = []
        self.history: list[str] = []
        self.broken = False  # a law did not hold
        self._joined = 0
        self._may_vanish: set[bytes] = set()  # jobs that this step may end
        self._any_may_vanish = False
        self._ended: set[bytes] = set()  # jobs whose runs this step ends
        self._may_lose: set[bytes] = set()  # jobs that this step may take the lock from
        self._entries: dict[bytes, tuple[bytes, bytes]] = {}
        self.before = self.look()

    # --- producers

    def enqueue(self, key: str, policy: Policy, *, delay: int = 0, framed: bool = False, max_wait: int = 0) -> Call:
        """One call. `framed`: in a frame of its own, as bulk enqueues pack those that are only refused or skipped."""
        call = Call(len(self.calls), key, policy, self._begin("enqueue", key, *policy, delay), "enqueued")
        until, on_conflict, renew = policy
        raw = builders.message(
            f"j{call.number:05}", args=[call.number], lock=key, lock_ttl_ms=TTL, until=until, on_conflict=on_conflict,
            renew=renew, due_ms=self.now + delay if delay else 0, now=self.now,
        )  # fmt: skip
        uid, lock = Message(raw).uid, self.keys.unique(Message(raw).lock_key)
        if framed and not delay and not renew and on_conflict in ("raise", "skip"):
            group: Sequence[Any] = requests.unique_frame(raw, 1, TTL, uid + b"W", [lock])
        else:
            due = self.now + delay if delay else 0
            group = requests.single(raw, due_ms=due, lock_key=lock, lock_ttl_ms=TTL, max_wait_ms=max_wait)
        refusals = self.broker.call(requests.enqueue(self.keys, [group], 1, laned=True, now=self.now))
        held = self.before.locks.get(key)
        if refusals:
            call.outcome = refusals[0].outcome
            if held:
                assert refusals[0].uid == held[0], "the holder that was named is not the lock's owner"
        else:
            if held:
                assert held[1] == "E" or not self._is_there(held[0]), f"{call} got in under the lock of {label(held[0])}"
                self._may_lose.add(held[0])
        self.calls.append(call)
        return call

    # --- workers

    def join(self) -> Worker:
        """One more worker."""
        self._joined += 1
        worker = Worker(f"w{self._joined}".encode())
        self._begin("join", worker.name)
        self.broker.call(requests.join(self.keys, worker.name, self.now))
        self.workers[worker.name] = worker
        return worker

    def fetch(self, worker: Worker, entries: int = 2) -> None:
        """Read what waits."""
        self._begin("fetch", worker.name)
        suspects = not any(stream == b"suspects" for stream, _, _ in worker.entries.values())
        found = self.broker.call(requests.fetch(self.keys, worker.name, entries=entries, suspects=suspects))
        worker.gate = found.gate != ""
        for stream, some in zip(STREAMS, (found.stream, found.front, found.suspects), strict=True):
            for entry_id, fields in some:
                assert fields is not None, "an entry without a body"
                if fields[0] != b"f":
                    worker.entries[entry_id] = (stream, 0, 0)
                    self._settle(worker, entry_id, None)
                    continue
                frame = Frame(fields[1])
                worker.entries[entry_id] = (stream, frame.count, 0)
                for place in range(frame.count):
                    worker.jobs[frame[place].uid] = Job(stream, entry_id, place, frame.message_bytes(place))

    def start(self, worker: Worker, uid: bytes) -> None:
        """Give a job a slot."""
        job = worker.jobs[uid]
        self._begin("start", worker.name, label(uid))
        if not asks(job.message) and not worker.gate:
            self._run(worker, job)
            return
        worker.starts += 1
        asked = Asked(job.stream, job.entry, job.place, head(job.raw))
        if job.message.policy & 3 == 2:
            self._may_lose.add(uid)
        [(verdict, changed)] = self.broker.call(
            requests.start(self.keys, worker.name, worker.starts, [asked], track_ms=DAY, lease_ms=LEASE, now=self.now)
        )
        self.history[-1] += f" -> {verdict}"
        if verdict in "gn":
            if changed is not None:
                job.raw, job.changed = changed, True
            self._run(worker, job)
        elif verdict == "k":
            self._settle(worker, job.entry, uid)
        elif verdict == "c":
            self._may_vanish.add(uid)
            self._may_lose.add(uid)
            self._settle(worker, job.entry, uid, ("end", "cancelled", int(job.message.attempt > 1), head(job.raw)))
        else:
            self._settle(worker, job.entry, uid, ("back", 1, job.raw))

    def end(self, worker: Worker, uid: bytes, how: str) -> None:
        """End the run of a job: "succeeded", "dropped", "cancelled", "retry" or "dead"."""
        job = worker.jobs[uid]
        message = job.message
        self._begin("end", worker.name, label(uid), how)
        if how == "retry":
            self._settle(worker, job.entry, uid, ("retry", self.now + 4000, message.replace(attempt=message.attempt + 1)))
            return
        self._may_vanish.add(uid)
        self._may_lose.add(uid)
        self._ended.add(uid)
        self.runs.append(Sight(_key(job.raw), payload(job.raw), job.began))
        if how == "dead":
            self._settle(worker, job.entry, uid, ("dead", job.raw, "why"))
        elif how == "succeeded" and not (asks(message) or worker.gate or job.changed or message.policy & 3 == 3):
            self._settle(worker, job.entry, uid, unlock=message)
        else:
            self._settle(worker, job.entry, uid, ("end", how, 1, head(job.raw)))

    def hand_back(self, worker: Worker, uid: bytes) -> None:
        """Give back a job, started or not, as at a shutdown."""
        self._begin("hand_back", worker.name, label(uid))
        self._settle(worker, worker.jobs[uid].entry, uid, ("back", 1, worker.jobs[uid].raw))

    def beat(self, worker: Worker) -> None:
        """A sign of life."""
        self._begin("beat", worker.name)
        assert self.broker.call(requests.beat(self.keys, [worker.name], self.now)) == [True]

    def tick(self, worker: Worker, later: int = 1500) -> None:
        """Move the clock, and let a worker tick."""
        self._begin("tick", worker.name, later)
        self._pass_time(worker, later)

    def kill(self, worker: Worker, *, seen: bool) -> None:
        """Kill a worker: its supervisor tells at once (`seen`), or the others notice its silence."""
        self._begin("kill", worker.name, seen)
        del self.workers[worker.name]
        self._may_vanish |= worker.jobs.keys()  # dead, for more than MAX_CRASHES; found among the dead then
        self._may_lose |= worker.jobs.keys()
        if seen:
            self._leave(worker, died=True)
        else:
            watcher = next(iter(self.workers.values()), None) or self._watcher()
            for _ in range(8):
                self._pass_time(watcher, LEASE // 4)

    def leave(self, worker: Worker) -> None:
        """Let a worker end well; what it holds goes back."""
        self._begin("leave", worker.name)
        del self.workers[worker.name]
        self._may_lose |= worker.jobs.keys()
        self._leave(worker, died=False)

    # --- whoever meddles

    def evict(self, key: str) -> None:
        """Delete a lock: it expired, or was evicted."""
        self._begin("evict", key)
        if held := self.before.locks.get(key):
            self._may_lose.add(held[0])
        self.client.delete(self._lock(key))

    def cancel(self, uid: bytes) -> None:
        """Ask that a job does not run."""
        self._begin("cancel", label(uid))
        self._may_vanish.add(uid)
        self._may_lose.add(uid)
        self.broker.call(requests.cancel(self.keys, uid, now=self.now))

    def purge(self) -> None:
        """Delete what waits."""
        self._begin("purge")
        self._any_may_vanish = True
        self._may_lose |= {owner for owner, _ in self.before.locks.values()}
        self.broker.call(requests.purge(self.keys, limit=100, now=self.now))

    def replay(self, uid: bytes) -> None:
        """Enqueue a dead job again."""
        self._begin("replay", label(uid))
        lock = self.before.locks.get(_key(self.before.jobs[uid][1]))
        [answer] = self.broker.call(requests.replay(self.keys, [uid], now=self.now))
        taken = lock is not None and lock[0] != uid
        assert answer == (2 if taken else answer), "a replay took the lock of another"

    def delete(self, uid: bytes) -> None:
        """Delete a dead job."""
        self._begin("delete", label(uid))
        self._may_vanish.add(uid)
        self._may_lose.add(uid)
        self.broker.call(requests.delete(self.keys, [uid], now=self.now))

    # --- laws

    def check(self) -> None:
        """What must hold after every step."""
        after = self.look()
        for uid, (place, raw) in self.before.jobs.items():
            if uid in after.jobs and after.jobs[uid][0] != "dead":
                continue
            if place == "dead" and uid in after.jobs:
                continue
            assert uid in self._may_vanish or self._any_may_vanish, f"{label(uid)} is gone"
            if uid not in self._ended:
                self.removed.append(Sight(_key(raw), payload(raw), self.step))
        for key, (owner, state) in after.locks.items():
            there = owner in after.jobs and after.jobs[owner][0] != "dead"
            assert there == (state != "E"), f"the lock of {key} is {label(owner)}'s ({state}), which is {after.jobs.get(owner)}"
        for key, (owner, state) in self.before.locks.items():
            heir = after.locks.get(key, (b"", ""))[0]
            if heir != owner and state != "E":
                # A `renew` job whose turn it is takes the lock of one that only waits.
                taken_over = state != "R" and heir in after.jobs and Message(after.jobs[heir][1]).policy & 4
                assert owner in self._may_lose or taken_over, f"{label(owner)} lost the lock of {key} to {after.locks.get(key)}"
        for uid, raw in after.pending.items():
            assert uid[:16] in after.jobs or self._outlived(uid[:16], _key(raw)), f"a call is left to {label(uid)}, which is gone"
        assert not after.handed.keys() - after.jobs.keys(), "arguments are kept for a job that is gone"
        self.before = after

    def drain(self) -> None:
        """Run everything to its end: nobody starves, no call is lost, and nothing is left behind."""
        if not self.workers:
            self.join()
            self.check()
        self.client.delete(self.keys.gate, self.keys.cancelled)
        worker = next(iter(self.workers.values()))
        for turn in range(200):
            for each in list(self.workers.values()):
                each.gate = False
                for uid in list(each.jobs):
                    if not each.jobs[uid].running:
                        self.start(each, uid)
                        self.check()
                for uid in [uid for uid, job in each.jobs.items() if job.running]:
                    self.end(each, uid, "succeeded")
                    self.check()
            self.fetch(worker, 100)
            self.check()
            self.tick(worker, 2500 if turn % 10 else DAY // 4)
            self.check()
            left = {uid: place for uid, (place, _) in self.before.jobs.items() if place != "dead"}
            if not left and not self.before.pending:
                break
        assert not left, f"starved: {left}"
        assert not self.before.pending
        for kind in ("parked:*", "parking", "running", "handed", "held:*"):
            assert not list(self.client.scan_iter(match=self.keys.prefix + kind.encode(), count=1000)), kind
        for call in self.calls:
            if call.outcome not in ("raise", "skipped"):
                assert any(self._sees(sight, call) for sight in (*self.runs, *self.removed)), f"lost: {call}"

    def look(self) -> Snapshot:
        """Read everything, in one go."""
        keys = self.keys
        pipe = self.client.pipeline(transaction=False)
        pipe.zrange(keys.scheduled, 0, -1)
        pipe.zrange(keys.dead, 0, -1)
        for one in (keys.jobs, keys.pending, keys.handed, keys.running, keys.progress):
            pipe.hgetall(one)
        for stream in STREAMS:
            pipe.xrange(keys.prefix + stream)
        for key in KEYS:
            pipe.get(self._lock(key))
            pipe.lrange(keys.parked(b"t:" + key.encode()), 0, -1)
        scheduled, dead, bodies, pending, handed, running, progress, *rest = pipe.execute()
        jobs: dict[bytes, tuple[str, bytes]] = {}
        jobs.update((uid, ("scheduled", bodies[uid])) for uid in scheduled)
        jobs.update((uid, ("dead", bodies[uid])) for uid in dead)
        for stream, entries in zip(STREAMS, rest[:3], strict=True):
            for entry_id, fields in entries:
                frame = Frame(fields.get(b"f", b""))
                settled = int.from_bytes(progress.get(entry_id, b""), "little")
                for place in range(frame.count):
                    if not settled >> place & 1:
                        uid = frame[place].uid
                        assert uid not in jobs, f"{label(uid)} is there twice"
                        jobs[uid] = (stream.decode(), handed.get(uid, frame.message_bytes(place)))
        locks = {}
        for key, value, parked in zip(KEYS, rest[3::2], rest[4::2], strict=True):
            if value:
                locks[key] = (value[:16], value[16:].decode())
            for raw in parked:
                assert Message(raw).uid not in jobs, f"{label(Message(raw).uid)} is there twice"
                jobs[Message(raw).uid] = ("parked", raw)
        return Snapshot(jobs, locks, pending, handed, running)

    # ---

    def _begin(self, *what: Any) -> int:
        self.step += 1
        self.history.append(" ".join(one.decode() if isinstance(one, bytes) else str(one) for one in what))
        self._may_vanish, self._may_lose, self._any_may_vanish, self._ended = set(), set(), False, set()
        return self.step

    def _lock(self, key: str) -> bytes:
        return self.keys.unique(b"t:" + key.encode())

    def _is_there(self, uid: bytes) -> bool:
        return self.before.jobs.get(uid, ("dead", b""))[0] != "dead"

    def _outlived(self, uid: bytes, key: str) -> bool:
        """Whether the lock that a call was left under may have been deleted since: it is found again within a day."""
        return self.before.locks.get(key, (b"", ""))[0] != uid

    def _run(self, worker: Worker, job: Job) -> None:
        if job.message.policy & 4:
            for other in self.workers.values():
                for one in other.jobs.values():
                    assert not (one.running and one.message.policy & 4 and _key(one.raw) == _key(job.raw)), (
                        f"{label(one.message.uid)} and {label(job.message.uid)} run at once"
                    )
        job.running, job.began = True, self.step

    def _settle(
        self, worker: Worker, entry: bytes, uid: bytes | None, *outcomes: tuple[Any, ...], unlock: Message | None = None
    ) -> None:
        stream, count, settled = worker.entries[entry]
        if uid is not None:
            settled |= 1 << worker.jobs.pop(uid).place
        finished = settled == (1 << count) - 1
        done: list[list[bytes]] = [[entry] if finished and name == stream else [] for name in STREAMS]
        if finished:
            del worker.entries[entry]
        else:
            worker.entries[entry] = (stream, count, settled)
        report = Report(
            done=(done[0], done[1], done[2]),
            progress=[] if finished else [entry, settled.to_bytes((count + 7) // 8, "little")],
            uids=unlock.uid if unlock else b"",
            locks=[self.keys.unique(unlock.lock_key)] if unlock else [],
            outcomes=list(outcomes),
        )
        worker.calls += 1
        self.broker.call(requests.settle(self.keys, worker.name, worker.calls, report.arguments(), now=self.now))

    def _leave(self, worker: Worker, *, died: bool) -> None:
        more = True
        while more:
            request = requests.leave(self.keys, worker.name, died=died, max_crashes=MAX_CRASHES, now=self.now)
            _, more = self.broker.call(request)

    def _pass_time(self, worker: Worker, ms: int) -> None:
        while ms > 0:  # in steps of which nobody thinks that the server had been away
            step = ms if ms > 10 * LEASE else min(ms, LEASE // 4)
            ms -= step
            self.now += step
            self.broker.call(requests.beat(self.keys, list(self.workers), self.now))
            self.broker.call(
                requests.tick(
                    self.keys, worker.name, lease_ms=LEASE, limit=200, max_crashes=MAX_CRASHES, dead_jobs=10**6,
                    dead_bytes=1 << 30, dead_ms=10**12, now=self.now,
                )
            )  # fmt: skip

    def _watcher(self) -> Worker:
        self._joined += 1
        worker = Worker(f"w{self._joined}".encode())
        self.broker.call(requests.join(self.keys, worker.name, self.now))
        self.workers[worker.name] = worker
        return worker

    def _sees(self, sight: Sight, call: Call) -> bool:
        if sight.key != call.key or sight.step <= call.step:
            return False
        return sight.number == call.number or (sight.number > call.number and self.calls[sight.number].supersedes)


KEYS = ("x", "y")  # few, so that jobs meet


def _key(raw: bytes) -> str:
    return Message(raw).lock_key.partition(b":")[2].decode()
