"""The laws that hold after every case, whatever was done to the server, the network or the workers.

- every accepted job has run to its end, or is dead; nothing ran that was not asked for, and nothing twice (but for jobs whose
  worker was killed, stopped or cut off);
- runs of one unique key do not overlap;
- nothing waits, nothing is pending, nothing is scheduled; no lock and no id is left;
- no key is without a TTL but those that belong to a queue itself.
"""

import re
import time
from collections.abc import Iterable
from dataclasses import replace

import redis

from fastq.keys import QueueKeys
from tests.support.ledger import Ledger, Reading, Run
from tests.support.servers import Server

LASTING = ("stream", "front", "suspects", "consumers", "stats", "watch", "gate", "progress", "dead", "jobs")
QUEUE_KEY = re.compile(rb"[^{]*\{(?P<queue>[^}]*)\}:(?P<rest>.*)", re.DOTALL)


def assert_laws(
    server: Server,
    namespace: str,
    ledger: Ledger,
    accepted: Iterable[str],
    *,
    may_repeat: Iterable[str] = (),
    dead: Iterable[str] = (),
    timeout: float = 20,
) -> Reading:
    """Wait for the drain and check the laws; workers must be running. Labels in `dead` must have died, all others not."""
    client = server.client()
    drained(client, namespace, timeout)
    reading = ledger.read()
    accepted, dead = set(accepted), set(dead)
    assert reading.missing(accepted - dead) == set(), "jobs were lost"
    assert set(reading.starts) - accepted == set(), "jobs ran that were not accepted"
    attempts = {(run.key, run.attempt): 0 for run in reading.runs}
    for run in reading.runs:
        attempts[run.key, run.attempt] += 1
    again = {label for (label, _), count in attempts.items() if count > 1}
    assert again - set(may_repeat) == set(), "jobs ran twice"
    assert _overlaps(reading, set(may_repeat)) == [], "two runs of one key at once"
    assert dead_jobs(client, namespace) == len(dead), "other jobs died than should"
    return reading


def _overlaps(reading: Reading, but: set[str]) -> list[tuple[Run, Run]]:
    """Runs of one unique key (or of one job that has none) that were in progress at once."""
    runs = [replace(run, key=run.key.partition("/")[0]) for run in reading.runs if run.key not in but]
    return Reading(runs).overlaps()


def drained(client: redis.Redis, namespace: str, timeout: float = 20) -> None:
    """Wait until no queue of the namespace holds anything; AssertionError with what is left."""
    deadline = time.monotonic() + timeout
    while left := what_is_left(client, namespace):
        assert time.monotonic() < deadline, f"not drained after {timeout} s: {left}"
        time.sleep(0.02)


# All keys at one moment: looked at one after another, a job that moves meanwhile could be missed everywhere.
_LOOK = """
local found = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
    local kind, entries, pending = redis.call('TYPE', key).ok, 0, 0
    if kind == 'stream' then
        entries = redis.call('XLEN', key)
        for _, group in ipairs(redis.call('XINFO', 'GROUPS', key)) do pending = pending + group[6] end
    end
    found[#found + 1] = {key, kind, entries, pending, redis.call('TTL', key)}
end
return found
"""


def what_is_left(client: redis.Redis, namespace: str) -> dict[str, object]:
    """What an idle queue would not hold, by key."""
    left: dict[str, object] = {}
    for key, kind, entries, pending, ttl in client.eval(_LOOK, 0, f"{namespace}:*"):
        if key == f"{namespace}:queues".encode():
            continue
        match = QUEUE_KEY.fullmatch(key)
        assert match, f"a key of no queue: {key!r}"
        name, rest = match["rest"].split(b":")[0].decode(), match["rest"]
        if name in ("stream", "front", "suspects"):
            if entries or pending:
                left[rest.decode()] = {"entries": entries, "pending": pending}
        elif name in ("scheduled", "unique", "id", "pending", "parked", "parking", "progress", "cancelled", "held", "wake"):
            left[repr(rest)] = kind.decode()
        elif name not in LASTING and ttl == -1:
            left[repr(rest)] = "without a TTL"
    return left


def dead_jobs(client: redis.Redis, namespace: str) -> int:
    """How many jobs are dead in all queues."""
    queues = client.zrange(f"{namespace}:queues", 0, -1)
    return sum(client.zcard(QueueKeys(namespace, queue.decode()).dead) for queue in queues)
