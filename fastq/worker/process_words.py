"""What a worker and a process that runs jobs for it say to each other: four bytes of length, then msgpack."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from fastq.logs import Format
from fastq.worker.homes import Home


class Setup(msgspec.Struct, tag="setup"):
    """The worker's first word: how modules are found there, which ones have tasks for processes, and how it logs."""

    sys_path: list[str]
    argv: list[str]
    main_file: str
    modules: list[str]
    log: tuple[Format, str] | None


class Order(msgspec.Struct, tag="order"):
    """Run a job.

    `begun` is on the monotonic clock, `timeout` in seconds, `clock_ahead` the server's clock before ours in milliseconds.
    `keeps`: its result is wanted; `renews`: its lock is extended with the worker's beat, and lives for 2 x `lease` at least.
    """

    home: Home
    task: str
    message: bytes
    queue: str
    begun: float
    timeout: float
    fence: int
    clock_ahead: int
    renews: bool
    lease: float
    keeps: bool


class Told(msgspec.Struct, tag="told"):
    """The job should stop."""

    reason: str


class Ready(msgspec.Struct, tag="ready"):
    """The child's first word."""


class Returned(msgspec.Struct, tag="returned"):
    """The job returned. `value` is msgpack; `heeded`: it had seen that it should stop."""

    value: msgspec.Raw
    heeded: bool


class Raised(msgspec.Struct, tag="raised"):
    """The job raised. `signal` is "retry", "drop", "unencodable" or ""; `delay` is that of a Retry."""

    module: str
    name: str
    text: str
    traceback: str
    args: msgspec.Raw
    signal: str = ""
    delay: float | None = None


_encode = msgspec.msgpack.Encoder().encode
hear_worker: Callable[[bytes], Setup | Order | Told] = msgspec.msgpack.Decoder(Setup | Order | Told).decode
hear_child: Callable[[bytes], Ready | Returned | Raised] = msgspec.msgpack.Decoder(Ready | Returned | Raised).decode
NOTHING = msgspec.Raw(_encode(None))


def frame(said: msgspec.Struct) -> bytes:
    """What goes over the socket."""
    body = _encode(said)
    return len(body).to_bytes(4, "little") + body
