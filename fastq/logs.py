"""How a program of fastq's logs: to stderr, one line an event, for people or for machines."""
from __future__ import annotations

import json
import logging
import sys
import time
from typing import IO, Any, Literal

Format = Literal["text", "json"]
LEVELS = ("debug", "info", "warning", "error")

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "bound"}


def set_up(format: Format = "text", level: str = "info", stream: IO[str] | None = None) -> None:
    """Log everything from `level` on to `stream` (None: stderr), also what libraries and tasks log.

    A program that has set up its own logging by the time its tasks are imported keeps it.

    >>> set_up("json", "warning")  # doctest: +SKIP
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if format == "json" else TextLines())
    handler.addFilter(JobFields())
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


class JobFields(logging.Filter):
    """Gives what a job logs the job's `task`, `uid`, `queue` and `attempt`, and its `job_id` if it has one; no arguments.

    `set_up` adds it. A program that sets up its own logging adds it to its handlers, and names the fields in its format.

    >>> handler.addFilter(JobFields())  # doctest: +SKIP
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Fields that the call gave as `extra` stay as they are."""
        from fastq.job import uid_string  # loaded with the first line that is logged: `--help` needs neither
        from fastq_ext.runner import current_run

        run = current_run()
        if run is not None:
            fields = {"task": run.message.task, "uid": uid_string(run.message.uid), "attempt": run.attempt}
            record.bound = "".join(f"{name}={value} " for name, value in fields.items())
            fields["queue"] = run.holding.keys.queue
            if run.message.job_id:
                fields["job_id"] = run.message.job_id
            for name, value in fields.items():
                record.__dict__.setdefault(name, value)
        return True


class TextLines(logging.Formatter):
    """`2026-05-31 09:30:00.123 INFO    4711 fastq.worker: ...`, in local time; tracebacks follow on their own lines.

    What a job logs begins with `task=send uid=... attempt=1`.
    """

    def __init__(self) -> None:
        line = "%(asctime)s.%(msecs)03d %(levelname)-7s %(process)d %(name)s: %(bound)s%(message)s"
        super().__init__(line, "%Y-%m-%d %H:%M:%S", defaults={"bound": ""})

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, whatever a message quotes: one event stays one line, and no control code reaches a terminal."""
        line = super().formatMessage(record)
        if line.isprintable():
            return line
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


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
