"""Unique jobs: what makes two calls the same, until when, and what the second one gets."""
from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any, Final, Literal, TypeAlias, get_args
from urllib.parse import quote

from fastq.codec import DigestKey, TaskSignature, digest_named, digest_text
from fastq.config import check_seconds
from fastq.errors import ConfigError, PayloadError, UniqueConfigError

Until = Literal["done", "success", "start", "ttl"]
OnConflict = Literal["raise", "skip", "replace", "rerun"]

_UNTIL = {name: bits for bits, name in enumerate(get_args(Until))}
_ON_CONFLICT = {name: bits for bits, name in enumerate(get_args(OnConflict))}
_RENEW_BIT = 1 << 2
_ON_CONFLICT_SHIFT = 3

_VERBATIM_BYTES = 200  # the longest key of a user's own that stands in Redis as it is
_log = logging.getLogger("fastq")


class WholeTask(Enum):
    """The type of `Unique.TASK`."""

    TASK = "task"


KeyFunction: TypeAlias = Callable[..., "str | None"]
Key: TypeAlias = "str | Sequence[str] | KeyFunction | WholeTask | None"


class Unique:
    """Makes a job unique: while its lock is held, the same call is not enqueued again in that queue.

    - `ttl` (seconds or a timedelta, at least 1 s): how long the lock lives at most, from when the job is due.
    - `key`: what makes two calls the same: None for all arguments; a parameter's name or a sequence of names for these
      only; a function that takes the call's arguments, as the task does, and returns a string; `Unique.TASK` for one
      lock for the whole task.
    - `until`: when the lock goes: "done", "success", "start" or "ttl".
    - `on_conflict`: what the second call gets: "raise" (DuplicateJobError), or the holder's Job after "skip", "replace"
      or "rerun".
    - `renew`: the lock lives as long as its job.
    - `max_wait`: with "replace", how long a job can be put off, counted from its first call.

    Raises UniqueConfigError for what cannot work.

    >>> Unique(ttl=60, key="order_id")
    Unique(ttl=60.0, key='order_id')
    """

    TASK: Final = WholeTask.TASK

    __slots__ = ("_key", "_max_wait", "_on_conflict", "_renew", "_ttl", "_until")

    def __init__(
        self,
        ttl: float | timedelta | None = None,
        key: Key = None,
        until: Until = "done",
        on_conflict: OnConflict = "raise",
        renew: bool = False,
        max_wait: float | timedelta | None = None,
    ) -> None:
        if ttl is None:
            raise UniqueConfigError("Unique(...) needs a ttl: the seconds after which its lock goes at the latest")
        self._ttl = _seconds("ttl", ttl)
        self._key: str | tuple[str, ...] | KeyFunction | WholeTask | None = _checked_key(key)
        self._until: Until = _one_of("until", until, _UNTIL)
        self._on_conflict: OnConflict = _one_of("on_conflict", on_conflict, _ON_CONFLICT)
        if not isinstance(renew, bool):
            raise UniqueConfigError(f"renew={renew!r}: True or False")
        self._renew = renew
        self._max_wait = None if max_wait is None else _seconds("max_wait", max_wait)
        if until in ("start", "ttl") and renew:
            raise UniqueConfigError(f'renew=True with until="{until}": the lock is not to live as long as its job')
        if until in ("start", "ttl") and on_conflict in ("replace", "rerun"):
            raise UniqueConfigError(
                f'on_conflict="{on_conflict}" with until="{until}": the lock has to last until its job has ended,'
                ' for then the latest call is handed over: use until="done" or "success"'
            )
        if max_wait is not None and on_conflict != "replace":
            raise UniqueConfigError('max_wait is for on_conflict="replace" only: nothing else puts a job off')

    @property
    def ttl(self) -> float:
        """Seconds that the lock lives at most, from when its job is due."""
        return self._ttl

    @property
    def key(self) -> str | tuple[str, ...] | KeyFunction | WholeTask | None:
        """What makes two calls the same."""
        return self._key

    @property
    def until(self) -> Until:
        """When the lock goes."""
        return self._until

    @property
    def on_conflict(self) -> OnConflict:
        """What the second call gets."""
        return self._on_conflict

    @property
    def renew(self) -> bool:
        """Whether the lock lives as long as its job."""
        return self._renew

    @property
    def max_wait(self) -> float | None:
        """Seconds that a job can be put off by "replace", from its first call."""
        return self._max_wait

    @property
    def policy(self) -> int:
        """The policy byte of the message."""
        bits = _UNTIL[self._until] | _ON_CONFLICT[self._on_conflict] << _ON_CONFLICT_SHIFT
        return bits | _RENEW_BIT if self._renew else bits

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that the key is made of; empty when it is made otherwise."""
        if isinstance(self._key, str):
            return (self._key,)
        return self._key if isinstance(self._key, tuple) else ()

    def _state(self) -> tuple[Any, ...]:
        return (self._ttl, self._key, self._until, self._on_conflict, self._renew, self._max_wait)

    def __eq__(self, other: object) -> bool:
        return self._state() == other._state() if isinstance(other, Unique) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._state())

    def __repr__(self) -> str:
        key = "Unique.TASK" if self._key is WholeTask.TASK else repr(self._key)
        parts = [f"ttl={self._ttl:g}" if self._ttl % 1 else f"ttl={self._ttl}"]
        parts += [f"key={key}"] if self._key is not None else []
        parts += [f"until={self._until!r}"] if self._until != "done" else []
        parts += [f"on_conflict={self._on_conflict!r}"] if self._on_conflict != "raise" else []
        parts += ["renew=True"] if self._renew else []
        parts += [f"max_wait={self._max_wait}"] if self._max_wait is not None else []
        return f"Unique({', '.join(parts)})"


def _seconds(what: str, value: Any) -> float:
    try:
        return check_seconds(what, value, least=1.0)
    except ConfigError as error:
        raise UniqueConfigError(str(error)) from None


def _one_of(what: str, value: Any, allowed: dict[Any, int]) -> Any:
    if not isinstance(value, str) or value not in allowed:
        raise UniqueConfigError(f"{what}={value!r}: must be one of {', '.join(map(repr, allowed))}")
    return value


def _checked_key(key: Any) -> Any:
    if key is None or key is WholeTask.TASK or callable(key):
        return key
    if isinstance(key, str):
        key = (key,)
    elif not isinstance(key, Sequence) or isinstance(key, bytes):
        raise UniqueConfigError(f"key={key!r}: give a parameter's name, names, a function, Unique.TASK or None")
    names = tuple(key)
    if not names or not all(isinstance(name, str) and name.isidentifier() for name in names):
        raise UniqueConfigError(f"key={key!r}: these are not names of parameters (one lock for all calls: Unique.TASK)")
    return names[0] if len(names) == 1 else names


# --- from a call to its lock key


LockKey: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], bytes]

_TASK_KEY = b"#task"  # what begins with # is ours: a key of the user's own never stands so in Redis


def lock_prefix(task: str) -> bytes:
    """The part of a lock key that names the task: `shop.tasks:send` becomes `shop.tasks%3Asend:`."""
    return quote(task, safe="").encode() + b":"


def lock_key_maker(unique: Unique, task: str, signature: TaskSignature | None) -> LockKey:
    """What makes the lock key of a call: `<task, %-encoded>:<key>`.

    `signature` None: the function is not known here, and what is passed by keyword is hashed as it is. What is made
    raises PayloadError for arguments that do not fit or have no canonical form. Raises UniqueConfigError for the name
    of a parameter that the task does not have.

    The forms of `<key>`, none of which can be mistaken for another: the user's own string, if it has at most 200 bytes
    and does not begin with #; `#<digest>` of all arguments; `#n:<digest>` of the named ones; `#k:<digest>` of a string
    that is longer or begins with #; `#task` for the whole task.
    """
    prefix = lock_prefix(task)
    if unique.names:
        return _named_key(unique.names, prefix + b"#n:", task, signature)
    if unique.key is WholeTask.TASK:
        whole = prefix + _TASK_KEY
        return lambda args, kwargs: whole
    if callable(unique.key):
        return _own_key(unique.key, prefix, task, signature)
    return _content_key(prefix + b"#", task, signature)


def _content_key(prefix: bytes, task: str, signature: TaskSignature | None) -> LockKey:
    if signature is not None:
        return _digest_key(signature, prefix, None, task)

    def content_key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        try:
            return prefix + _digest_as_passed(args, kwargs)
        except (TypeError, ValueError) as error:
            raise PayloadError(f"{task}: {error}") from None

    return content_key


def _digest_as_passed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    # No parameter is called "*", so a call with positional arguments meets only its like.
    return digest_named({**kwargs, "*": list(args)} if args else kwargs)


def _digest_key(signature: TaskSignature, prefix: bytes, only: tuple[str, ...] | None, task: str) -> LockKey:
    return DigestKey(signature.canonical, prefix, only, lambda error: PayloadError(f"{task}: {error}"))


def _named_key(names: tuple[str, ...], prefix: bytes, task: str, signature: TaskSignature | None) -> LockKey:
    if signature is not None:
        known = [p.name for p in signature.parameters if p.kind != "var_keyword"]
        open_ended = len(known) < len(signature.parameters)  # **extra takes any name
        if not open_ended and (unknown := [name for name in names if name not in known]):
            raise UniqueConfigError(
                f"key={unknown[0]!r}: task {task!r} has no such parameter, it has {', '.join(known) or 'none'}"
            )
        return _digest_key(signature, prefix, names, task)

    def named_key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        if args:
            raise PayloadError(
                f"{task}: the function is not known here: its lock is made of named arguments, pass keywords"
            )
        try:
            return prefix + digest_named({name: kwargs[name] for name in names if name in kwargs})
        except (TypeError, ValueError) as error:
            raise PayloadError(f"{task}: {error}") from None

    return named_key


def _own_key(function: KeyFunction, prefix: bytes, task: str, signature: TaskSignature | None) -> LockKey:
    warned = False

    def own_key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        nonlocal warned
        if signature is not None:
            args, kwargs = signature.bind(args, kwargs)
        key = function(*args, **kwargs)
        if not key and (key is None or isinstance(key, str)):
            if not warned:
                warned = True
                _log.warning("task %r: its key function returned %r: one lock for the whole task then", task, key)
            return prefix + _TASK_KEY
        if not isinstance(key, str):
            raise PayloadError(f"{task}: the key function of Unique returned a {type(key).__name__}, not a str")
        try:
            text = key.encode()
        except UnicodeEncodeError:
            raise PayloadError(f"{task}: the lock's key {key!r} has a lone surrogate, which UTF-8 has not") from None
        if len(text) > _VERBATIM_BYTES or text.startswith(b"#"):
            return prefix + b"#k:" + digest_text(key)
        return prefix + text

    return own_key


def warn_of_weak_lock(unique: Unique, task: str, *, longest_run: float | None) -> None:
    """Log what is legal but likely a mistake. `longest_run`: seconds of all attempts and delays; None: no limit."""
    if unique.key is WholeTask.TASK:
        _log.warning("task %r: Unique.TASK: at most one job of the whole task is in a queue at any time", task)
    if not unique.renew and unique.until != "ttl" and (longest_run is None or unique.ttl < longest_run):
        _log.warning(
            "task %r: its lock lives %g s, but its attempts and their delays can take %s: after that a duplicate can be"
            " enqueued while the job still runs; raise ttl, lower timeout or retries, or use renew=True",
            task,
            unique.ttl,
            "for ever" if longest_run is None else f"{longest_run:g} s",
        )
