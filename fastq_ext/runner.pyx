"""The slots that run jobs: no task, timer or lock is made for a job, and one that ends at once never goes back to the event loop.

A slot is awaited by one asyncio task for as long as it lives. It drives the coroutines of its jobs itself, each in a context of its
own, so `asyncio.current_task`, `asyncio.timeout` and cancellation work in them as in a task of their own. A context in which a job
has left no trace, and that nobody has copied, is as good as new: the next job gets it.
"""
cimport cython

import contextvars
from asyncio import CancelledError
from collections import deque

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from fastq_ext.clock cimport monotonic
from fastq_ext.context cimport HELD_BY_JUST, variables_of
from fastq_ext.holding cimport Entry, Holding, Line
from fastq_ext.message cimport (
    Frame,
    Message,
    message_attempt,
    message_enqueued_ms,
    message_flags,
    message_job_id_size,
    message_lock_key_size,
    message_payload,
    message_payload_size,
    message_policy,
    message_version,
)


cdef extern from "Python.h":
    int PyIter_Send(object iterator, object value, PyObject** result) except -1
    object PyContext_Copy(object context)
    int PyContext_Enter(object context) except -1
    int PyContext_Exit(object context) except -1
    PyObject* PyContextVar_Set(object var, object value) except NULL
    object PyObject_Call(object callable, object args, PyObject* kwargs)
    void Py_DECREF(PyObject* thing)


cdef enum:
    SENT_RETURN = 0             # PYGEN_RETURN: the coroutine has returned
    TRACKED_FLAG = 16
    DUE_FLAG = 1
    EXPIRES_FLAG = 2
    EXTRAS_FLAG = 8

cdef double TURN = 0.001        # seconds that jobs may run before the event loop gets its turn

_current = contextvars.ContextVar("fastq_current_run")


def current_run():
    """The Run of the job that is running here; None outside of one."""
    return _current.get(None)


def set_current_run(run):
    """What `current_run()` gives from here on, in a process that runs jobs for its worker."""
    _current.set(run)


cdef inline bint asks_for_lock(Frame frame, int place) noexcept:
    """Whether the job's lock is of a kind that the server has to see to at its start, and at its end."""
    cdef int policy = message_policy(frame, place)
    # until "start" (2), renew (4), on_conflict "replace" or "rerun" (16)
    return message_lock_key_size(frame, place) and (policy & 3 == 2 or policy & 20)


cdef inline bint tells_of_lock(Frame frame, int place) noexcept:
    """Whether the server has to hear of the job's end more than that its lock goes: also a lock that is kept ("ttl", 3) tells it."""
    return asks_for_lock(frame, place) or (message_lock_key_size(frame, place) and message_policy(frame, place) & 3 == 3)


cdef inline Line known_line(Holding holding, Frame frame, int place):
    """The job's task; None when that, or the version of its message, is not known here."""
    return holding.line_of(frame, place) if message_version(frame, place) == 1 else None


cdef inline uint64_t ready_ms(Run run) except? 0:
    """From when on a job could have run, ms since 1970: its enqueue, or the end of its delay."""
    if message_flags(run.entry.frame, run.place) & DUE_FLAG:
        return run.entry.frame[run.place].due_ms
    return message_enqueued_ms(run.entry.frame, run.place)


@cython.no_gc  # a slot lets go of its run, and so no cycle lasts
@cython.freelist(256)
cdef class Run:
    """One attempt of a job."""

    @property
    def message(self):
        """The job's message."""
        return self.changed or self.entry.frame[self.place]

    @property
    def attempt(self):
        """From 1."""
        return message_attempt(self.entry.frame, self.place)

    @property
    def enqueued_ms(self):
        """When it was enqueued, ms since 1970."""
        return message_enqueued_ms(self.entry.frame, self.place)

    @property
    def fence(self):
        """Greater than that of every earlier delivery of the queue."""
        return self.entry.fence() | <uint64_t>self.place

    @property
    def renews(self):
        """Whether its lock lives only for as long as its worker beats."""
        return message_policy(self.entry.frame, self.place) & 4 != 0 and message_lock_key_size(self.entry.frame, self.place) != 0

    @property
    def alive(self):
        """Whether its outcome still counts."""
        return self.ended is None and not self.holding.dropped and self.entry.is_open(self.place)

    def wait(self):
        """It waits for a thread or a process: its time does not run yet."""
        self.waits = True

    def start(self):
        """It has what it waited for. False: not yet, its worker may look dead, and the job may be another's by now."""
        cdef double now = monotonic()
        if now > self.slot.runner.start_until:
            return False
        self.begun = now
        self.waits = False
        return True


cdef class Slot:
    """A runner slot; `await` it in a task of its own."""

    def __init__(self, Runner runner):
        self.runner = runner

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.step(None)

    def send(self, value):
        return self.step(None)

    def throw(self, kind, value=None, traceback=None):
        error = kind if value is None and isinstance(kind, BaseException) else value
        if error is None or isinstance(error, type):
            error = kind()
        if self.coroutine is None:
            self.waiter = None
            raise error
        return self.step(error)

    def close(self):
        """End the job in it by force. Raises RuntimeError when its coroutine ignores even that."""
        coroutine, context = self.coroutine, self.context
        if coroutine is None:
            return
        self.leave()
        PyContext_Enter(context)
        try:
            coroutine.close()
        finally:
            PyContext_Exit(context)
            self.tidy()

    cdef object step(self, object error):
        """Goes on until there is something to wait for, which is returned; StopIteration ends the slot."""
        cdef Runner runner = self.runner
        cdef double now = 0     # one look at the clock serves the end of a job and the begin of the next; 0: look again
        self.waiter = None
        while True:
            if self.coroutine is None:
                if runner.stopping or self.removed:
                    raise StopIteration
                if now == 0:
                    now = monotonic()
                if runner.out_of_turn(now):
                    return None
                if now > runner.start_until or not runner.next_job(self, now):
                    self.waiter = runner.loop.create_future()
                    self.waiter._asyncio_future_blocking = True
                    runner.idle.append(self)
                    runner.on_room()
                    return self.waiter
                if self.coroutine is None:
                    now = 0
                    continue
            waits_for = self.drive(error)
            error = None
            if self.coroutine is not None:
                if not self.suspended:
                    # The next job gets a slot only now: one that never waits needs no second one.
                    self.suspended = True
                    runner.wake(4)
                return waits_for
            self.tidy()
            now = self.left
            if self.stained():
                runner.stain(self)
                raise StopIteration

    cdef object drive(self, object error):
        """Runs the job's coroutine to where it waits (returns for what) or ends (no coroutine is left)."""
        cdef PyObject* result = NULL
        cdef Run run = self.run
        cdef Runner runner = self.runner
        cdef int how = 1
        if not self.entered:
            PyContext_Enter(self.context)
        self.entered = False
        try:
            if error is None:
                how = PyIter_Send(self.coroutine, None, &result)
            else:
                try:
                    return self.coroutine.throw(error)
                except StopIteration as stop:
                    how = SENT_RETURN
                    value = stop.value
        except BaseException as raised:
            PyContext_Exit(self.context)
            how = 2
            self.leave()
            if run.ended is None:
                runner.failed(run, raised)
            return None
        finally:
            if how != 2:
                PyContext_Exit(self.context)
        if error is None:
            value = <object>result
            Py_DECREF(result)
        if how != SENT_RETURN:
            return value
        self.leave()
        if run.ended is not None:
            return None
        if (run.line.keeps or run.holding.gate or run.changed is not None or tells_of_lock(run.entry.frame, run.place)
                or message_job_id_size(run.entry.frame, run.place) or message_flags(run.entry.frame, run.place) & TRACKED_FLAG):
            runner.returned(run, value)
        else:
            run.holding.succeed(run.entry, run.place, run.line)
        return None

    cdef int begin(self, Holding holding, Entry entry, int place, Line line, bytes changed, double now) except -1:
        """Starts the coroutine of a job; leaves none when the job cannot be started."""
        cdef Runner runner = self.runner
        cdef Frame frame = entry.frame
        cdef double timeout
        if line is None:
            runner.lost(entry, place, None)
            return 0
        timeout = line.timeout
        message = None
        try:
            if message_flags(frame, place) & EXTRAS_FLAG:
                timeout = frame[place].extras.get("timeout", line.timeout) or 0.0
            if changed is not None:
                message = Message(changed)
                args, kwargs = line.decode_any(message.payload)
            else:
                args, kwargs = line.decode(message_payload(frame, place), message_payload_size(frame, place))
        except Exception as error:
            runner.lost(entry, place, error)
            return 0
        if self.own is None:
            self.furnish()
        cdef Run run = self.own
        run.holding, run.entry, run.place, run.line, run.slot = holding, entry, place, line, self
        run.begun, run.timeout, run.changed = now, timeout, message
        PyContext_Enter(self.context)
        try:
            coroutine = PyObject_Call(line.call, args, <PyObject*>kwargs if kwargs is not None else NULL)
        except BaseException as error:
            PyContext_Exit(self.context)
            run = None
            self.tidy()
            if not isinstance(error, Exception):
                raise
            # Nothing of the function has run: its arguments do not fit.
            runner.lost(entry, place, error)
            return 0
        self.entered = True     # `drive` follows at once
        self.run, self.coroutine, self.suspended = run, coroutine, False
        runner.running += 1
        return 0

    cdef int furnish(self) except -1:
        """Makes a Run and a context in which it is `current_run()`."""
        cdef PyObject* variables
        self.own = Run.__new__(Run)
        self.context = PyContext_Copy(self.runner.base)
        PyContext_Enter(self.context)
        try:
            Py_DECREF(PyContextVar_Set(_current, self.own))
        finally:
            PyContext_Exit(self.context)
        variables = variables_of(self.context)
        self.variables = <object>variables if variables != NULL else None
        return 0

    cdef int tidy(self) except -1:
        """Keeps the Run and the context of a job that has left the slot for the next one, unless somebody else can see them still:
        whoever holds the Run, the context, or a copy of it. A job that has set a variable leaves other variables behind."""
        cdef Run run = self.own     # held by this function, the slot and the context
        cdef PyObject* variables = <PyObject*>self.variables
        if (self.variables is not None and variables_of(self.context) == variables and HELD_BY_JUST(variables, 2)
                and HELD_BY_JUST(<PyObject*>self.context, 1) and HELD_BY_JUST(<PyObject*>run, 3)):
            run.holding = run.entry = run.line = run.slot = run.changed = run.reason = run.ended = None
            run.waits = run.heeded = False
        else:
            self.own = self.context = self.variables = None
        return 0

    cdef object leave(self):
        """The job has left the slot."""
        cdef Run run = self.run
        if not self.removed:
            self.runner.running -= 1
        self.runner.finished += 1
        cdef double took
        self.left = 0
        if not run.waits:
            self.left = monotonic()
            took = self.left - run.begun
            run.line.took(took)
            if run.line.runs is not None:
                run.line.runs.add(took)
                if message_attempt(run.entry.frame, run.place) == 1:
                    run.line.waits.add(max(0.0, run.begun + run.holding.clock_ahead - ready_ms(run) * 1e-3))
        self.coroutine = self.run = None

    cdef bint stained(self):
        """Whether the slot's task was left with a cancellation that would hit the next job."""
        if self.cancelling is None:
            if self.task is None:
                return False
            self.cancelling = self.task.cancelling
        return self.cancelling() > 0


cdef class Runner:
    """A set of slots and the holdings that feed them. All callbacks run on the event loop and must not raise."""

    def __init__(self, loop, *, lost, failed, returned, on_room, stain):
        self.loop = loop
        self.lost, self.failed, self.returned, self.on_room, self.stain = lost, failed, returned, on_room, stain
        self.slots = []
        self.holdings = []
        self.idle = deque()
        self.base = contextvars.copy_context()
        self.start_until = float("inf")

    def new_slot(self):
        """A slot that takes part as soon as its task awaits it."""
        slot = Slot(self)
        self.slots.append(slot)
        return slot

    def remove_slot(self, Slot slot):
        """Forget a slot whose task has ended, or whose job does not end."""
        self.slots.remove(slot)
        if slot.run is not None:
            self.running -= 1
        slot.removed = True

    def feed(self):
        """Tell the slots that jobs wait."""
        self.wake(1)

    def wake_all(self):
        """Let every idle slot look around, at the end."""
        self.wake(len(self.slots))

    @property
    def ready(self):
        """Jobs that wait for a slot."""
        cdef Holding holding
        cdef int n = 0
        for holding in self.holdings:
            n += holding.ready
        return n

    @property
    def unsettled(self):
        """Jobs whose turn has ended and of which the server does not know yet."""
        cdef Holding holding
        cdef int n = 0
        for holding in self.holdings:
            n += holding.unsettled
        return n

    def runs(self):
        """The jobs in the slots."""
        cdef Slot slot
        return [slot.run for slot in self.slots if slot.run is not None]

    def late(self, double now):
        """The jobs that are past their time limit and were not told yet."""
        cdef Slot slot
        return [slot.run for slot in self.slots if slot.run is not None and slot.suspended and slot.run.timeout > 0
                and not slot.run.waits and slot.run.reason is None and now - slot.run.begun > slot.run.timeout]

    cdef bint next_job(self, Slot slot, double now) except -1:
        cdef Holding holding
        cdef Entry entry
        cdef Line line
        cdef int place, at
        cdef bytes changed
        for at in range(len(self.holdings)):
            holding = self.holdings[at]
            while holding.ready:
                changed = None
                if holding.cleared:
                    entry, place, changed = holding.cleared.popleft()
                    holding.ready -= 1
                    line = known_line(holding, entry.frame, place)
                else:
                    entry = holding.queue[0]
                    place = entry.next
                    while place < entry.frame.count and (entry.settled >> place) & 1:
                        place += 1
                    entry.next = place + 1
                    if entry.next >= entry.frame.count:
                        holding.queue.popleft()
                        if place >= entry.frame.count:
                            continue
                    holding.ready -= 1
                    line = known_line(holding, entry.frame, place)
                    if self.must_ask(holding, entry.frame, place, line):
                        holding.asking.append((entry, place))
                        if len(holding.asking) == 1:
                            holding.on_asking()
                        continue
                    if self.in_turn and entry.next >= entry.frame.count:
                        self.holdings.append(self.holdings.pop(at))
                slot.begin(holding, entry, place, line, changed, now)
                return True
        return False

    cdef bint must_ask(self, Holding holding, Frame frame, int place, Line line):
        """Whether the server has to be asked before the job starts; what cannot be started is not asked for."""
        if message_version(frame, place) != 1:
            return False
        if holding.gate or message_flags(frame, place) & (TRACKED_FLAG | EXPIRES_FLAG):
            return True
        if asks_for_lock(frame, place) or (message_lock_key_size(frame, place) and message_attempt(frame, place) > 1):
            return True
        return line is not None and line.asks

    cdef int wake(self, int most) except -1:
        cdef Slot slot
        cdef int ready = most if self.stopping else min(most, self.ready)
        while ready > 0 and self.idle:
            slot = self.idle.pop()
            if slot.waiter is not None:
                if not slot.waiter.done():
                    slot.waiter.set_result(None)
                ready -= 1
        return 0

    cdef bint out_of_turn(self, double now) except -1:
        """Whether jobs have run for long enough: the event loop has to see to its connections and timers."""
        if not self.turn_on:
            self.turn_on = True
            self.turn_ends = now + TURN
            self.loop.call_soon(self.new_turn)
            return False
        return now > self.turn_ends

    def new_turn(self):
        self.turn_on = False
