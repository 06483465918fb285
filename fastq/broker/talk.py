"""What to do with each thing that can happen to a call: a reply, an error of the server, a lost connection. No I/O.

A call that changes nothing when it is repeated is sent again until `patience` seconds have passed. One that is not repeatable is
sent again only while it is certain that the server has not carried it out.
"""

import random
import time
from typing import Any, Generic, TypeVar

import hiredis
import redis

from fastq.broker.requests import Request
from fastq.errors import BrokerError

T = TypeVar("T")

# The server did not run the call and may be able to soon; for those in _ELSEWHERE it may be another server by then.
SOON = (b"LOADING", b"BUSY ", b"MASTERDOWN", b"READONLY", b"TRYAGAIN", b"CLUSTERDOWN", b"NOREPLICAS", b"MISCONF")
_ELSEWHERE = (b"READONLY", b"MASTERDOWN", b"LOADING")
_HELP = {
    b"OOM": "Redis is out of memory: nothing was written; raise maxmemory or let the workers drain the queue",
    b"NOAUTH": "Redis asks for a password: put it into the URL, redis://:password@host:6379/0",
    b"WRONGPASS": "Redis refused the user or the password of the URL",
    b"NOPERM": "this Redis user may not run what fastq needs (scripts, streams and the keys of its namespace)",
    b"WRONGTYPE": "a key of fastq's holds something else: is the namespace shared with another program?",
}


class Talk(Generic[T]):
    """One call from its first try to its end."""

    def __init__(self, request: Request[T], shown: str, patience: float, lane: bytes = b"", number: int = 0) -> None:
        self._request = request
        self._shown = shown
        self._until = time.monotonic() + patience
        self.lane = lane, number
        self._tries = 0
        self._heard_nothing = False  # a try was sent, and its reply was lost
        self.data = request.pack(lane, number)
        self.reconnect = False  # whether the next try needs a new connection
        self.pause = 0.0  # seconds before the next try

    def failed(self, error: Exception, *, sent: bool) -> None:
        """A connection could not be made (`sent` false) or was lost. Prepares the next try, or raises BrokerError."""
        self._heard_nothing = self._heard_nothing or sent
        if (sent and not self._request.repeatable) or not self._again():
            shown = self._shown
            what = f"the connection to {shown} was lost" if sent else f"no connection to {shown} could be made"
            tail = "; the call may or may not have been carried out" if self._heard_nothing else ""
            raise BrokerError(f"{what}: {error}{tail}", maybe_enqueued=self._heard_nothing) from error
        self.reconnect = True

    def answered(self, reply: Any) -> bool:
        """A reply came: whether it ends the call. If not, the next try is prepared. Raises BrokerError."""
        self.pause, self.reconnect = 0.0, False
        error = None if self._request.tolerant else _first_error(reply, self._request.replies)
        if error is None:
            return True
        text = str(error).encode("utf-8", "replace")
        if text.startswith(b"NOSCRIPT") and self._request.script is not None:
            self.data = self._request.pack(*self.lane, by_source=True)
            return False
        if text.startswith(SOON) and self._again():
            self.reconnect = text.startswith(_ELSEWHERE)
            return False
        code = text.split(b" ", 1)[0].decode()
        refused = ServerError(_explain(text, self._shown), code, maybe_enqueued=self._heard_nothing)
        raise refused from redis.ResponseError(str(error))

    def _again(self) -> bool:
        self._tries += 1
        self.pause = min(0.05 * 2 ** min(self._tries - 1, 5), 1.0) * random.uniform(0.5, 1.0)
        return time.monotonic() + self.pause < self._until


class ServerError(BrokerError):
    """The server answered with an error; `code` is its first word."""

    def __init__(self, message: str, code: str, *, maybe_enqueued: bool = False) -> None:
        super().__init__(message, maybe_enqueued=maybe_enqueued)
        self.code = code


def _first_error(reply: Any, replies: int) -> Any:
    if isinstance(reply, hiredis.ReplyError):
        return reply
    if replies > 1:
        return next((one for one in reply if isinstance(one, hiredis.ReplyError)), None)
    return None


def _explain(text: bytes, shown: str) -> str:
    said = text.decode("utf-8", "replace")
    for code, help_ in _HELP.items():
        if text.startswith(code):
            return f"{help_} ({shown} said: {said})"
    return f"{shown} answered with an error: {said}"
