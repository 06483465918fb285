"""Every Redis key of a queue, by name.

All keys of a queue begin with `ns:{queue}:`, so that they live in one slot of a Redis Cluster. What comes from users
(lock keys, job ids) stands last, so no two keys can run together. Scripts get the prefix and build the same names.
"""
from __future__ import annotations

from functools import lru_cache

from fastq.config import check_name

GROUP = b"fastq"


class QueueKeys:
    """The keys of one queue, as bytes.

    >>> QueueKeys("shop", "mail").unique(b"send_email:o-1")
    b'shop:{mail}:unique:send_email:o-1'
    """

    __slots__ = (
        "_calls",
        "_held",
        "_id",
        "_job",
        "_lane",
        "_parked",
        "_result",
        "_unique",
        "cancelled",
        "consumers",
        "dead",
        "front",
        "gate",
        "handed",
        "jobs",
        "namespace",
        "parking",
        "pending",
        "prefix",
        "progress",
        "queue",
        "running",
        "scheduled",
        "stats",
        "stream",
        "suspects",
        "wake",
        "watch",
    )

    def __init__(self, namespace: str, queue: str) -> None:
        self.namespace = check_name("namespace", namespace)
        self.queue = check_name("queue", queue)
        self.prefix = prefix = f"{namespace}:{{{queue}}}:".encode()
        self.stream = prefix + b"stream"
        self.front = prefix + b"front"
        self.suspects = prefix + b"suspects"
        self.scheduled = prefix + b"scheduled"
        self.jobs = prefix + b"jobs"
        self.dead = prefix + b"dead"
        self.pending = prefix + b"pending"  # calls that wait to rerun: uid of the job that hands them on -> message
        self.handed = prefix + b"handed"  # what jobs that got the arguments of such a call run with: uid -> message
        self.parking = prefix + b"parking"  # the lock keys behind which jobs are parked
        self.running = prefix + b"running"  # `renew` jobs that run: lock key -> uid and worker
        self.consumers = prefix + b"consumers"
        self.progress = prefix + b"progress"
        self.cancelled = prefix + b"cancelled"
        self.gate = prefix + b"gate"
        self.watch = prefix + b"watch"
        self.wake = prefix + b"wake"
        self.stats = prefix + b"stats"
        self._unique = prefix + b"unique:"
        self._parked = prefix + b"parked:"
        self._id = prefix + b"id:"
        self._job = prefix + b"job:"
        self._result = prefix + b"result:"
        self._held = prefix + b"held:"
        self._calls = prefix + b"calls:"
        self._lane = prefix + b"lane:"

    def unique(self, lock_key: bytes) -> bytes:
        """The lock of a unique job; `lock_key` is what its message carries, `<task, %-encoded>:<key>`."""
        return self._unique + lock_key

    def parked(self, lock_key: bytes) -> bytes:
        """The jobs that wait for the lock's running holder to end."""
        return self._parked + lock_key

    def id(self, job_id: str) -> bytes:
        """The job that uses this explicit id."""
        return self._id + job_id.encode()

    def job(self, uid: bytes) -> bytes:
        """State and times of a tracked job; `uid` are its 16 bytes."""
        return self._job + uid

    def result(self, uid: bytes) -> bytes:
        """The result of a job."""
        return self._result + uid

    def held(self, worker: bytes) -> bytes:
        """The locks of the `renew` jobs that this worker runs."""
        return self._held + worker

    def calls(self, worker: bytes) -> bytes:
        """Number and reply of this worker's last call."""
        return self._calls + worker

    def lane(self, producer: bytes) -> bytes:
        """Number and reply of this producer's last call."""
        return self._lane + producer


@lru_cache(maxsize=1024)
def queue_keys(namespace: str, queue: str) -> QueueKeys:
    """The keys of a queue, made once. Raises ConfigError for a bad name."""
    return QueueKeys(namespace, queue)


def queues_key(namespace: str) -> bytes:
    """The set of all queues of a namespace, by their last use."""
    return f"{namespace}:queues".encode()

