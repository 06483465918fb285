"""The executor: how a job of each task is called, and what each way of ending means. It never touches Redis."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any

from fastq.codec import Message, Template, encode_plain, new_uid
from fastq.errors import PayloadError
from fastq.job import uid_string
from fastq.middleware import Middlewares
from fastq.retry import Drop, Retry, RetryPolicy, retries_as_sent
from fastq.task import Task
from fastq.worker.failures import UnencodableResult, describe, printable, text_of, traceback_of
from fastq.worker.places import hand_back
from fastq.worker.processes import Processes
from fastq.worker.report import Outcome
from fastq.worker.threads import Threads
from fastq_ext.holding import Entry, Holding, Line
from fastq_ext.runner import Run

_log = logging.getLogger("fastq.worker")

NO_RESULT_MS = 60_000  # that the word of a success without a result is kept; the job's record outlives it
MAX_KEPT = 65536  # bytes of a corrupt frame that are kept
UNKNOWN_GRACE_MS = 3_600_000  # a job whose task or message version nobody here knows is given back for so long
UNKNOWN_DELAYS_MS = (1000, 2000, 5000, 10_000, 30_000)


class Executor:
    """Turns what happens to runs into outcomes on their holdings."""

    keeps_all = False  # whether every success is reported here: the test kit's are

    def __init__(self, threads: Threads, processes: Processes, now_ms: Callable[[], int], middlewares: Middlewares) -> None:
        self._threads = threads
        self._processes = processes
        self._middlewares = middlewares
        self._now_ms = now_ms

    def line(self, task: Task[Any, Any]) -> Line:
        """How the runner calls a task's jobs. Raises ConfigError for a function that another process could not find."""
        call = self._middlewares.around(self._call_of(task))
        keeps = task.track or self.keeps_all
        return Line(task, task.name, call, task.decoder, asks=task.track, keeps=keeps, timeout=task.timeout or 0.0)

    def _call_of(self, task: Task[Any, Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
        if task.is_async:
            return task.fn
        if task.executor == "process":
            return self._processes.caller(task)
        return self._threads.caller(task.fn)

    # --- what the runner reports

    def returned(self, run: Run, value: Any) -> None:
        """An attempt returned, and its success leaves a record."""
        message, task = run.message, run.line.task
        outcomes: list[Outcome] = []
        if task.result_ttl is not None:
            try:
                encoded = encode_plain(value)
            except BaseException as error:  # whatever the value's own code raises
                self.failed(run, UnencodableResult(f"the result cannot be encoded: {describe(error)}"))
                return
            outcomes.append(("result", message.uid, round(task.result_ttl * 1000), encoded))
        elif message.tracked:
            outcomes.append(("result", message.uid, NO_RESULT_MS, b""))  # wakes whoever waits for one
        run.holding.count("succeeded")
        run.holding.count(f"succeeded:{task.name}")
        run.holding.end(run.entry, run.place, ("end", "succeeded", 1, head_of(message)), *outcomes)

    def failed(self, run: Run, error: BaseException) -> None:
        """An attempt raised."""
        try:
            self._failed(run, error)
        except BaseException as problem:  # a fault of ours, or code of the user's own, must not lose the job
            _log.exception("task=%s uid=%s its failure could not be handled", run.line.task.name, run.message.uid.hex(),
                           extra=_fields(run.holding, run.message))  # fmt: skip
            if run.alive:
                self._bury(run, problem, "its failure could not be handled")

    def _failed(self, run: Run, error: BaseException) -> None:
        message, task = run.message, run.line.task
        if isinstance(error, Drop):
            _log.info("task=%s uid=%s dropped: %s", task.name, message.uid.hex(), describe(error),
                      extra=_fields(run.holding, message))  # fmt: skip
            self.end(run, "dropped")
        elif run.reason in ("shutdown", "doubt"):  # and whatever else it raised when it was told: it has not been done
            hand_back(run)
        elif run.reason == "cancel":
            self.end(run, "cancelled")
        elif isinstance(error, UnencodableResult):
            self._bury(run, error, "its result cannot be encoded")
        else:
            if run.reason == "timeout":
                limit = run.timeout
                error = TimeoutError(f"the attempt ran longer than {limit:g} s")
            try:
                delay = self._delay(run, message, error)
            except BaseException as problem:  # the policy is the user's
                self._bury(run, problem, f"its retry policy failed: {describe(problem)}")
                return
            if delay is None:
                self._bury(run, error, "")
            else:
                self._retry(run, message, error, delay)

    def lost(self, entry: Entry, place: int, why: BaseException | None) -> None:
        """A job cannot be started: its task or version is not known here (why is None), or its arguments do not fit."""
        message, holding = entry.frame[place], entry.holding
        if why is None:
            self._give_back(entry, place, message)
            return
        text = str(why) if isinstance(why, PayloadError) else describe(why)
        _log.error("task=%s uid=%s dead: %s", message.task, message.uid.hex(), text, extra=_fields(holding, message))
        holding.count(f"dead:{message.task}")
        holding.end(entry, place, ("dead", with_error(message, why, "the arguments do not fit the task"), ""))

    def unsound(self, entry: Entry) -> None:
        """What stands behind the sound messages of a frame goes dead once, its bytes kept, cut to 64 KiB."""
        rest = bytes(entry.frame.rest[:MAX_KEPT])
        now = self._now_ms()
        _log.error("queue=%s entry=%s: %d bytes cannot be read as a message", entry.holding.keys.queue,
                   entry.id.decode(), len(entry.frame.rest))  # fmt: skip
        message = Template("fastq:unreadable").encode((rest,), {}, new_uid(now), now)
        entry.holding.end_rest(entry, ("dead", message, "these bytes of a stream entry cannot be read as a message"))

    def end(self, run: Run, state: str) -> None:
        """End a run in a final state other than success and death."""
        run.holding.count(state)
        run.holding.count(f"{state}:{run.line.task.name}")
        run.holding.end(run.entry, run.place, ("end", state, 1, head_of(run.message)))

    # --- outcomes

    def _delay(self, run: Run, message: Message, error: BaseException) -> float | None:
        policy: RetryPolicy = run.line.task.retry
        override = message.extras.get("retries")
        if override is not None:
            policy = retries_as_sent(override, policy)
        delay = policy.next_delay(message.attempt, error)
        if delay is not None and isinstance(error, Retry) and error.delay is not None:
            return error.delay
        return delay

    def _retry(self, run: Run, message: Message, error: BaseException, delay: float) -> None:
        task = run.line.task
        _log.warning("task=%s uid=%s attempt=%d failed, next in %.1f s: %s", task.name, message.uid.hex(), message.attempt,
                     delay, describe(error), extra=_fields(run.holding, message))  # fmt: skip
        run.holding.count("failed")
        run.holding.count(f"failed:{task.name}")
        due = self._now_ms() + max(0, round(delay * 1000))
        again = with_error(message, error, "", attempt=message.attempt + 1)
        run.holding.end(run.entry, run.place, ("retry", due, again))

    def _bury(self, run: Run, error: BaseException, why: str) -> None:
        message, task = run.message, run.line.task
        _log.error("task=%s uid=%s attempt=%d dead: %s", task.name, message.uid.hex(), message.attempt, why or describe(error),
                   extra=_fields(run.holding, message))  # fmt: skip
        run.holding.count("failed")
        run.holding.count(f"failed:{task.name}")
        run.holding.count(f"dead:{task.name}")
        run.holding.end(run.entry, run.place, ("dead", with_error(message, error, why), ""))

    def _give_back(self, entry: Entry, place: int, message: Message) -> None:
        """A job that a newer worker may know waits for one, uncounted as an attempt, until its grace is over."""
        holding, now = entry.holding, self._now_ms()
        what = f"task {message.task!r}" if message.version == 1 else f"message version {message.version}"
        since = _unknown_since(message, now)
        waited = now - since
        if waited > UNKNOWN_GRACE_MS:
            _log.error("queue=%s uid=%s dead: %s is not known here", holding.keys.queue, message.uid.hex(), what)
            holding.end(entry, place, ("dead", _with_unknown_since(message, None), f"unknown {what}"))
            return
        step = sum(waited > 2 * delay for delay in UNKNOWN_DELAYS_MS[:-1])
        _log.warning("queue=%s uid=%s %s is not known here: given back", holding.keys.queue, message.uid.hex(), what)
        # By chance, or the same worker could be the first to see it, time after time.
        due = now + int(UNKNOWN_DELAYS_MS[step] * random.uniform(0.5, 1))
        holding.end(entry, place, ("retry", due, _with_unknown_since(message, since)))


def _fields(holding: Holding, message: Message) -> dict[str, Any]:
    """What a line of the log that is about a job carries, for machines."""
    fields = {"task": message.task, "uid": uid_string(message.uid), "queue": holding.keys.queue, "attempt": message.attempt}
    return {**fields, "job_id": message.job_id} if message.job_id else fields


def _unknown_since(message: Message, now_ms: int) -> int:
    """When a worker first did not know the job's task; of another message version only the time of its enqueue is known."""
    if message.version != 1:
        return message.enqueued_at
    since = _extras(message).get("unknown_since")
    return since if isinstance(since, int) else now_ms


def _with_unknown_since(message: Message, since: int | None) -> bytes:
    if message.version != 1:
        return message.raw
    extras = {name: value for name, value in _extras(message).items() if name != "unknown_since"}
    if since is not None:
        extras["unknown_since"] = since
    return message.replace(extras=encode_plain(extras) if extras else b"")


def _extras(message: Message) -> dict[str, Any]:
    try:
        return dict(message.extras)
    except ValueError:  # not to be read: a job of that kind is dead anyway once its task is known
        return {}


def head_of(message: Message) -> bytes:
    """A message up to its payload: what scripts look at."""
    raw = message.raw
    return raw[: len(raw) - len(message.payload)]


def with_error(message: Message, error: BaseException, why: str, *, attempt: int | None = None) -> bytes:
    """The message with its last error in it, trimmed."""
    try:
        extras = message.extras
    except ValueError:  # what cannot be read is not worth more than the error
        extras = {}
    extras["error"] = {
        "why": why or "no attempts left",
        "type": printable(type(error).__qualname__),
        "text": text_of(error),
        "traceback": traceback_of(error),
    }
    return message.replace(attempt=attempt, extras=encode_plain(extras))
