"""Waiting for a job's result, and what its states mean to whoever waits.

The steps are generators that yield requests and get their answers, so that sync and async callers share them.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

import msgspec

from fastq.broker import requests
from fastq.codec import Message
from fastq.errors import BrokerError, JobFailed, ResultTimeout, ResultUnavailable
from fastq.job import uid_string
from fastq.keys import QueueKeys

T = TypeVar("T")
Steps: TypeAlias = Generator["requests.Request[Any]", Any, T]

LOOK_AGAIN = 10.0  # seconds of waiting after which it is looked whether the job is still there
_OPEN = frozenset({"scheduled", "waiting", "running", "retrying"})
_decode = msgspec.msgpack.Decoder().decode


def status(keys: QueueKeys, uid: bytes, job_id: str | None, lock_key: bytes) -> Steps[str]:
    """The state of a job; "untracked" or "unknown" where there is no record."""
    known = yield requests.status(keys, uid, job_id or "", lock_key)
    return known.state or ("unknown" if job_id else "untracked")


def wait(keys: QueueKeys, uid: bytes, job_id: str | None, timeout: float | None) -> Steps[Any]:
    """The result of a job. Raises JobFailed, ResultTimeout, ResultUnavailable."""
    until = None if timeout is None else time.monotonic() + timeout
    if not uid:
        known = yield requests.status(keys, uid, job_id or "")
        uid = known.uid
        if not uid:
            raise ResultUnavailable(f"no job uses the id {job_id!r}: it is unknown, or its retention has passed")
    seconds = 0.0
    while True:
        try:
            kept = yield requests.result(keys, uid, seconds=seconds)
        except BrokerError:
            if not seconds:
                raise
            seconds = 0.0  # the connection was lost while it waited: look again, which waits for the server a while
            continue
        if kept is not None and kept.value is not None:
            return _decode(kept.value)
        known = yield requests.status(keys, uid)
        if kept is None and known.state == "succeeded":
            kept = yield requests.result(keys, uid, seconds=0)  # it may have come between the two looks
            if kept is not None and kept.value is not None:
                return _decode(kept.value)
        if kept is not None or known.state not in _OPEN:
            raise _no_result(uid, known.state or (kept.state if kept else ""), known.message)
        if known.message and not Message(known.message).tracked:
            raise _no_result(uid, "", b"")
        seconds = LOOK_AGAIN if until is None else min(LOOK_AGAIN, until - time.monotonic())
        if seconds <= 0:
            raise ResultTimeout(f"job {uid_string(uid)} is {known.state}: its result did not come within {timeout:g} s")


def _no_result(uid: bytes, state: str, message: bytes) -> Exception:
    shown = uid_string(uid)
    if state == "succeeded":
        return ResultUnavailable(f"job {shown} has succeeded, but its result is not kept (any more): see result_ttl=")
    if state == "deleted":
        return ResultUnavailable(f"job {shown} was deleted before it had ended")
    if not state:
        return ResultUnavailable(
            f"job {shown} keeps no result, or its record has expired: give its task result_ttl=, or the job a job_id"
        )
    error = _error_of(message)
    why = f": {error.get('type', '')}: {error.get('text', '')}" if error else ""
    return JobFailed(
        f"job {shown} is {state}{why}", job_uid=shown, state=state, error=str(error.get("text", "")), **_details(error)
    )


def _error_of(message: bytes) -> dict[str, Any]:
    try:
        error = Message(message).extras.get("error")
    except ValueError:
        return {}
    return error if isinstance(error, dict) else {}


def _details(error: dict[str, Any]) -> dict[str, Any]:
    return {name: error[name] for name in ("why", "type", "traceback") if name in error}
