"""Routes: what all calls with one target and the same options share, made once so that a call does little."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastq.broker.requests import WAITING, plain_enqueue, plain_frame, single, unique_frame
from fastq.codec import EncodeError, Message, Template, encode_plain, new_uid, payload_error
from fastq.config import Config
from fastq.errors import PayloadError
from fastq.keys import queue_keys
from fastq.middleware import OutgoingCall
from fastq.options import Options
from fastq.task import Target
from fastq.unique import lock_key_maker

DAY_MS = 86_400_000
HOLD_MS = DAY_MS  # how long past its due time a waiting job's id, record and `renew` lock live without a sign of life
UNIQUE_COST = 5  # a call takes 1,000 plain jobs or 200 with a lock or an id, which keep the server busy as long

Arg = bytes | str | int | float
Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class Encoded:
    """One job, ready to be sent. `framed`: nothing but its message and a lock has to be written, so it may share a frame."""

    __slots__ = ("due_ms", "framed", "lock_key", "message", "uid")

    def __init__(self, uid: bytes, message: bytes, due_ms: int, lock_key: bytes, framed: bool) -> None:
        self.uid = uid
        self.message = message
        self.due_ms = due_ms
        self.lock_key = lock_key
        self.framed = framed


class Route:
    """The way of one kind of call. `outgoing` are functions that see each job before it is sent.

    Raises UniqueConfigError when made, for a lock that names a parameter the task does not have.
    """

    __slots__ = (
        "_at_ms",
        "_delay_ms",
        "_framed",
        "_id_key",
        "_id_ttl_ms",
        "_job_id",
        "_lock_ttl_ms",
        "_max_wait_ms",
        "_outgoing",
        "_packable",
        "_signature",
        "_track_ms",
        "config",
        "cost",
        "job_id",
        "key_of",
        "keys",
        "laned",
        "lock_ttl_ms",
        "options",
        "plain",
        "queue",
        "target",
        "task",
        "template",
        "validate",
    )

    def __init__(
        self, config: Config, target: Target, options: Options, outgoing: Sequence[Callable[[OutgoingCall], None]] = ()
    ) -> None:
        self._outgoing = outgoing
        unique = options.unique
        tracked = target.tracked or bool(options.job_id)
        self.config, self.target, self.options = config, target, options
        self.task = target.name
        self.queue = options.queue
        self.keys = queue_keys(config.namespace, options.queue)
        self.job_id = options.job_id or None
        self.validate = config.validate and target.signature is not None
        self._signature = target.signature
        self._job_id = options.job_id.encode()
        self._delay_ms = round(options.delay * 1000)
        self._at_ms = options.at_ms
        self._id_key = self.keys.id(options.job_id) if options.job_id else b""
        self._id_ttl_ms = HOLD_MS if options.job_id else 0
        self._track_ms = HOLD_MS if tracked else 0
        self.key_of = lock_key_maker(unique, target.name, target.signature) if unique is not None else None
        ttl_ms = round(unique.ttl * 1000) if unique is not None else 0
        self._max_wait_ms = round(unique.max_wait * 1000) if unique is not None and unique.max_wait is not None else 0
        # Until a worker has it, the lock of a `renew` job must outlast any wait; from then on the worker extends it.
        self.lock_ttl_ms = max(HOLD_MS, ttl_ms) if unique is not None and unique.renew else ttl_ms
        message_options: dict[str, Any] = {
            "policy": unique.policy if unique is not None else 0,
            "lock_ttl_ms": ttl_ms,
            "tracked": tracked,
            "retention_ms": round(options.retention * 1000),
            "expires_in_ms": None if options.expires is None else round(options.expires * 1000),
            "extras": encode_plain(dict(options.overrides)) if options.overrides else b"",
            "max_payload": config.max_payload,
        }
        signature = target.signature
        if signature is not None:
            self.template = signature.template(**message_options)
        else:
            self.template = Template(target.name, **message_options)
        held = unique is not None or bool(options.job_id)
        self.laned = held
        self.cost = UNIQUE_COST if held else 1
        # Frames of unique jobs are for locks that the server only sets or not; any other kind needs a look at the job.
        refuses = unique is None or unique.on_conflict in ("raise", "skip")
        self._framed = refuses and not (tracked or options.job_id)
        self.plain = plain_enqueue(self.keys) if self._framed and unique is None and config.max_queue is None else None
        self._packable = self._framed and not (self._delay_ms or self._at_ms or self.validate)

    @property
    def packable(self) -> bool:
        """Whether its jobs can be packed into frames in compiled code."""
        return self._packable and not self._outgoing

    def encode(self, args: Args, kwargs: Kwargs, now_ms: int) -> Encoded:
        """Check and encode a call. Raises PayloadError."""
        signature = self._signature
        if signature is not None:
            signature.check(args, kwargs)
        uid = new_uid(now_ms)
        due_ms = now_ms + self._delay_ms if self._delay_ms else self._at_ms
        if due_ms <= now_ms:
            due_ms = 0
        lock_key = self.key_of(args, kwargs) if self.key_of is not None else b""
        try:
            message = self.template.encode(args, kwargs, uid, now_ms, due_ms, lock_key, self._job_id)
        except EncodeError as error:
            raise payload_error(self.task, error) from None
        if self._outgoing:
            message = self._with_headers(message)
        if self.validate and signature is not None:
            signature.decoder.decode(Message(message).payload)
        return Encoded(uid, message, due_ms, lock_key, self._framed and not due_ms)

    def _with_headers(self, message: bytes) -> bytes:
        call = OutgoingCall(self.task, self.queue, {})
        for see in self._outgoing:
            see(call)
        if not call.headers:
            return message
        view = Message(message)
        message = view.replace(extras=encode_plain({**view.extras, "headers": call.headers}))
        if len(message) > self.config.max_payload:
            raise PayloadError(f"{self.task}: with its headers the message has {len(message)} bytes, more than max_payload")
        return message

    def group(self, job: Encoded, now_ms: int) -> Sequence[Arg]:
        """The arguments of the script that add this job alone."""
        if job.framed:
            if not job.lock_key:
                return plain_frame(job.message, 1)
            return unique_frame(job.message, 1, self.lock_ttl_ms, job.uid + WAITING, (self.keys.unique(job.lock_key),))
        wait_ms = max(0, job.due_ms - now_ms)
        return single(
            job.message,
            due_ms=job.due_ms,
            lock_key=self.keys.unique(job.lock_key) if job.lock_key else b"",
            lock_ttl_ms=self.lock_ttl_ms + wait_ms if job.lock_key else 0,
            id_key=self._id_key,
            id_ttl_ms=self._id_ttl_ms + wait_ms if self._id_key else 0,
            track_ms=self._track_ms + wait_ms if self._track_ms else 0,
            max_wait_ms=self._max_wait_ms,
        )
