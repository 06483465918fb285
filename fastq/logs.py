"""How a program of fastq's logs: to stderr, one line an event, for people or for machines."""
from __future__ import annotations

import json
import logging
import sys
import time
from typing import IO, Any, Literal

Format = Literal["text", "json"]
LEVELS = ("debug", "info", "warning", "error")

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up(format: Format = "text", level: str = "info", stream: IO[str] | None = None) -> None:
    """Log everything from `level` on to `stream` (None: stderr), also what libraries and tasks log.

    A program that has set up its own logging by the time its tasks are imported keeps it.

    >>> set_up("json", "warning")  # doctest: +SKIP
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if format == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.captureWarnings(True)


def as_set_up() -> tuple[Format, str] | None:
    """What `set_up` was given, for another process of this program; None when the program logs in a way of its own."""
    for handler in logging.getLogger().handlers:
        level = logging.getLevelName(logging.getLogger().level).lower()
        if isinstance(handler.formatter, TextLines):
            return "text", level
        if isinstance(handler.formatter, JsonLines):
            return "json", level
    return None


class TextLines(logging.Formatter):
    """`2026-05-31 09:30:00.123 INFO    4711 fastq.worker: ...`, in local time; tracebacks follow on their own lines."""

    def __init__(self) -> None:
        line = "%(asctime)s.%(msecs)03d %(levelname)-7s %(process)d %(name)s: %(message)s"
        super().__init__(line, "%Y-%m-%d %H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, whatever a message quotes: what looks like two events is one."""
        return super().formatMessage(record).replace("\r", "\\r").replace("\n", "\\n")


class JsonLines(logging.Formatter):
    """An object a line: time (UTC), level, logger, pid, message, what the call gave as `extra`, and a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The object; what JSON cannot hold is written as its repr."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        event: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _OWN},
        }
        if record.exc_info:
            event["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            event["stack"] = self.formatStack(record.stack_info)
        return json.dumps(event, default=repr)
