"""What stands in a queue, read from Redis as it is."""

import msgspec
import redis

from fastq.codec import Frame, Message
from fastq.keys import QueueKeys


def frames(client: redis.Redis, namespace: str, queue: str = "default") -> list[list[Message]]:
    """The messages that wait, by the frames in which they do."""
    entries = client.xrange(QueueKeys(namespace, queue).stream)
    return [[frame[i] for i in range(len(frame))] for frame in (Frame(fields[b"f"]) for _, fields in entries)]


def waiting(client: redis.Redis, namespace: str, queue: str = "default") -> list[Message]:
    """The messages that wait, in their order."""
    return [message for frame in frames(client, namespace, queue) for message in frame]


def scheduled(client: redis.Redis, namespace: str, queue: str = "default") -> list[tuple[int, Message]]:
    """The messages that are scheduled, with their due times in ms."""
    keys = QueueKeys(namespace, queue)
    due = client.zrange(keys.scheduled, 0, -1, withscores=True)
    bodies = client.hgetall(keys.jobs)
    return [(int(score), Message(bodies[uid])) for uid, score in due]


def arguments(message: Message) -> list[object]:
    """The payload as it is: [positional, keyword]."""
    decoded: list[object] = msgspec.msgpack.decode(message.payload)
    return decoded


def locks(client: redis.Redis, namespace: str, queue: str = "default") -> dict[bytes, bytes]:
    """The locks that are held: lock key -> uid of the holder."""
    return _owners(client, QueueKeys(namespace, queue).unique(b""))


def ids(client: redis.Redis, namespace: str, queue: str = "default") -> dict[bytes, bytes]:
    """The explicit ids in use: id -> uid of the holder."""
    return _owners(client, QueueKeys(namespace, queue).id(""))


def _owners(client: redis.Redis, prefix: bytes) -> dict[bytes, bytes]:
    found = {key: client.get(key) for key in client.scan_iter(match=prefix + b"*", count=1000)}
    return {key.removeprefix(prefix): value[:16] for key, value in found.items() if value is not None}  # one may have gone
