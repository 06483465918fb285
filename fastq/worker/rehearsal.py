"""The test kit's worker: it runs what is due in this process, needs no heart, and tells what came of each job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from fastq.codec import Frame, Message
from fastq.config import Config
from fastq.task import Task
from fastq.worker.executor import Executor
from fastq.worker.heart import Heart
from fastq.worker.report import Report
from fastq.worker.worker import Desk, Worker
from fastq_ext.holding import Entry, Holding
from fastq_ext.runner import Run

if TYPE_CHECKING:
    from fastq.app import FastQ


UID = slice(10, 26)  # where a message has it


@dataclass(frozen=True, slots=True)
class Turn:
    """How one turn of a job ended: its message, its state now, and what the function returned or raised."""

    queue: str
    message: Message
    state: str
    value: Any = None
    error: BaseException | None = None


class NoHeart(Heart):
    """Nobody judges this worker, and there is no process to tell how to reach the server."""

    def __init__(self, config: Config) -> None:
        super().__init__(replace(config, redis_options={}))

    @property
    def well_until(self) -> float:
        return float("inf")

    async def run(self) -> None:
        self.ready.set()
        await asyncio.get_running_loop().create_future()


class _Executor(Executor):
    """Sees each value and each error, and runs tasks for processes in threads: a child would know of no test."""

    keeps_all = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.seen: dict[bytes, dict[str, Any]] = {}

    def _call_of(self, task: Task[Any, Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
        call: Any = task.fn if task.is_async else self._threads.caller(task.fn)
        return cast(Callable[..., Coroutine[Any, Any, Any]], call)

    def returned(self, run: Run, value: Any) -> None:
        self.seen[run.message.uid] = {"message": run.message, "value": value}
        super().returned(run, value)

    def failed(self, run: Run, error: BaseException) -> None:
        self.seen[run.message.uid] = {"message": run.message, "error": error}
        super().failed(run, error)

    # These two know what the error counts as: a cancelled attempt may have run out of time.

    def _retry(self, run: Run, message: Message, error: BaseException, delay: float) -> None:
        self.seen[run.message.uid] = {"message": run.message, "error": error}
        super()._retry(run, message, error, delay)

    def _bury(self, run: Run, error: BaseException, why: str) -> None:
        self.seen[run.message.uid] = {"message": run.message, "error": error}
        super()._bury(run, error, why)

    def lost(self, entry: Entry, place: int, why: BaseException | None) -> None:
        self.seen[entry.frame[place].uid] = {"error": why}
        super().lost(entry, place, why)


class Rehearsal(Worker):
    """Runs what is due in these queues and returns. `told` hears of each turn."""

    executor_type = _Executor
    heart_type = NoHeart
    burst_horizon = 0.0

    def __init__(self, app: FastQ, told: Callable[[Turn], None], *, queues: list[str], concurrency: int) -> None:
        super().__init__(app, queues=queues, concurrency=concurrency, burst=True, grace=0)
        self._told = told

    def _desk(self, keys: Any, worker: bytes) -> Desk:
        desk = super()._desk(keys, worker)
        desk.settler.on_settled = lambda report: self._on_settled(desk.holding, report)
        return desk

    def _on_settled(self, holding: Holding, report: Report) -> None:
        if not report.outcomes:
            return
        messages = {message.uid: message for entry in holding.entries.values() for message in _messages(entry.frame)}
        seen = cast(_Executor, self._executor).seen
        for kind, *details in report.outcomes:
            if kind not in ("end", "dead", "retry"):
                continue
            uid = details[0 if kind == "dead" else -1][UID]
            if uid in messages:  # not so for bytes that are no message
                facts = {"message": messages[uid], **seen.pop(uid, {})}
                # A retry without an error: it was given back, for a worker that knows its task.
                if kind != "retry" or facts.get("error") is not None:
                    state = {"end": details[0], "dead": "dead", "retry": "retrying"}[kind]
                    self._told(Turn(holding.keys.queue, state=state, **facts))


def _messages(frame: Frame) -> Iterator[Message]:
    return (frame[place] for place in range(len(frame)))
