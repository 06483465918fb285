from asyncio import AbstractEventLoop, Task
from collections.abc import Callable, Generator
from typing import Any

from fastq_ext.holding import Entry, Holding, Line
from fastq_ext.message import Message

def current_run() -> Run | None:
    """The Run of the job that is running here; None outside of one."""

def set_current_run(run: Any) -> None:
    """What `current_run()` gives from here on, in a process that runs jobs for its worker."""

class Run:
    """One attempt of a job, from the moment it gets a slot.

    `begun` is on the monotonic clock, `timeout` in seconds (0: none). `reason` says why it was told to stop: "timeout", "cancel",
    "shutdown". `heeded` is set when it looked, and so knows of it; `ended` when its turn was taken from it.
    """

    reason: str | None
    heeded: bool
    ended: bool | None

    @property
    def holding(self) -> Holding: ...
    @property
    def entry(self) -> Entry: ...
    @property
    def place(self) -> int: ...
    @property
    def line(self) -> Line: ...
    @property
    def slot(self) -> Slot: ...
    @property
    def begun(self) -> float: ...
    @property
    def timeout(self) -> float: ...
    @property
    def message(self) -> Message:
        """The job's message."""
    @property
    def attempt(self) -> int:
        """From 1."""
    @property
    def enqueued_ms(self) -> int:
        """When it was enqueued, ms since 1970."""
    @property
    def fence(self) -> int:
        """Greater than that of every earlier delivery of the queue."""
    @property
    def renews(self) -> bool:
        """Whether its lock lives only for as long as its worker beats."""
    @property
    def alive(self) -> bool:
        """Whether its outcome still counts."""
    @property
    def waits(self) -> bool:
        """Whether it has a slot, but no thread or process yet."""
    def wait(self) -> None:
        """It waits for a thread or a process: its time does not run yet."""
    def start(self) -> bool:
        """It has what it waited for. False: not yet, its worker may look dead, and the job may be another's by now."""

class Slot:
    """A runner slot; `await` it in a task of its own, `task`."""

    task: Task[None] | None

    def __init__(self, runner: Runner) -> None: ...
    @property
    def runner(self) -> Runner: ...
    @property
    def run(self) -> Run | None: ...
    def __await__(self) -> Generator[Any]: ...
    def __iter__(self) -> Slot: ...
    def __next__(self) -> Any: ...
    def send(self, value: Any) -> Any: ...
    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> Any: ...
    def close(self) -> None:
        """End the job in it by force. Raises RuntimeError when its coroutine ignores even that."""

class Runner:
    """A set of slots and the holdings that feed them. All callbacks run on the event loop and must not raise.

    After `start_until`, on the monotonic clock, no job starts: the worker may look dead by then. Whoever moves it calls `feed()`.
    """

    stopping: bool
    start_until: float
    in_turn: bool

    def __init__(
        self,
        loop: AbstractEventLoop,
        *,
        lost: Callable[[Entry, int, BaseException | None], None],
        failed: Callable[[Run, BaseException], None],
        returned: Callable[[Run, Any], None],
        on_room: Callable[[], None],
        stain: Callable[[Slot], None],
    ) -> None: ...
    @property
    def loop(self) -> AbstractEventLoop: ...
    @property
    def slots(self) -> list[Slot]: ...
    @property
    def holdings(self) -> list[Holding]: ...
    @property
    def running(self) -> int:
        """Slots with a job."""
    @property
    def finished(self) -> int:
        """Jobs whose turn ended here, ever."""
    @property
    def ready(self) -> int:
        """Jobs that wait for a slot."""
    @property
    def unsettled(self) -> int:
        """Jobs whose turn has ended and of which the server does not know yet."""
    @property
    def lost(self) -> Callable[[Entry, int, BaseException | None], None]: ...
    @property
    def failed(self) -> Callable[[Run, BaseException], None]: ...
    @property
    def returned(self) -> Callable[[Run, Any], None]: ...
    @property
    def on_room(self) -> Callable[[], None]: ...
    @property
    def stain(self) -> Callable[[Slot], None]: ...
    def new_slot(self) -> Slot:
        """A slot that takes part as soon as its task awaits it."""
    def remove_slot(self, slot: Slot) -> None:
        """Forget a slot whose task has ended."""
    def feed(self) -> None:
        """Tell the slots that jobs wait."""
    def wake_all(self) -> None:
        """Let every idle slot look around, at the end."""
    def runs(self) -> list[Run]:
        """The jobs in the slots."""
    def late(self, now: float) -> list[Run]:
        """The jobs that are past their time limit and were not told yet."""
    def new_turn(self) -> None:
        """The event loop has had its turn."""
