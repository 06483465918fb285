"""The lines of the log: one an event, whatever an event holds."""

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fastq.logs import JsonLines, TextLines


@pytest.fixture
def log() -> Iterator[Callable[[logging.Formatter], tuple[logging.Logger, io.StringIO]]]:
    """Makes a logger that writes by a formatter, and what it writes to."""
    logger = logging.Logger("shop")

    def make(formatter: logging.Formatter) -> tuple[logging.Logger, io.StringIO]:
        handler = logging.StreamHandler(stream := io.StringIO())
        handler.setFormatter(formatter)
        logger.addHandler(handler)
        return logger, stream

    return make


def test_a_message_cannot_look_like_two(log: Any) -> None:
    logger, stream = log(TextLines())

    logger.warning("task %s failed", "a\r\n2026-01-01 00:00:00.000 ERROR 1 root: forged")

    assert stream.getvalue().count("\n") == 1
    assert r"a\r\n2026" in stream.getvalue()


def test_a_text_line_says_when_how_bad_who_and_what(log: Any) -> None:
    logger, stream = log(TextLines())

    logger.error("it broke")

    date, clock, level, pid, name, message = stream.getvalue().split(maxsplit=5)
    assert (len(date), len(clock), level, name, message) == (10, 12, "ERROR", "shop:", "it broke\n")
    assert pid.isdigit()


def test_a_json_line_holds_what_was_given_along(log: Any) -> None:
    logger, stream = log(JsonLines())

    try:
        raise ValueError("no\nluck")
    except ValueError:
        logger.exception("job %d", 7, extra={"task": "send", "what": {1, 2}.__class__})

    [line] = stream.getvalue().splitlines()
    event = json.loads(line)
    assert (event["level"], event["logger"], event["message"], event["task"]) == ("error", "shop", "job 7", "send")
    assert event["what"] == "<class 'set'>"
    assert event["traceback"].endswith("ValueError: no\nluck")
