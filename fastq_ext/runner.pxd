cimport cython

from fastq_ext.holding cimport Entry, Holding, Line
from fastq_ext.message cimport Frame


# One attempt of a job, from the moment it gets a slot. It is also what the job sees of itself (fastq.current_job).
@cython.final
cdef class Run:
    cdef readonly Holding holding
    cdef readonly Entry entry
    cdef readonly int place
    cdef readonly Line line
    cdef readonly Slot slot
    cdef readonly double begun          # on the monotonic clock
    cdef readonly bint waits            # it has a slot, but no thread or process yet
    cdef readonly double timeout        # seconds for this attempt; 0: none
    cdef object changed                 # its Message, when a later call gave it other arguments
    cdef public object reason           # why it was told to stop: "timeout", "cancel", "shutdown", "doubt"; None
    cdef public bint heeded             # it has looked whether it was told to stop, after it was
    cdef public object ended            # set when its turn was taken from it: a late end counts no more


# A runner slot: what one asyncio task awaits for as long as it lives, driving one job's coroutine after another.
@cython.final
cdef class Slot:
    cdef readonly Runner runner
    cdef public object task             # the asyncio task that awaits this slot
    cdef object cancelling              # of that task
    cdef readonly Run run               # the job in it
    cdef object coroutine               # of that job
    cdef object context                 # in which it runs
    cdef object variables               # of that context
    cdef Run own                        # what `current_run()` gives in that context
    cdef object waiter                  # the future that an idle slot waits for
    cdef bint entered                   # that context is the current one already
    cdef bint suspended                 # the job has given way to the event loop at least once
    cdef bint removed                   # the runner counts on it no more
    cdef double left                    # when its last job ended, on the monotonic clock; 0: that was not looked at

    cdef object step(self, object error)
    cdef object drive(self, object error)
    cdef int begin(self, Holding holding, Entry entry, int place, Line line, bytes changed, double now) except -1
    cdef int furnish(self) except -1
    cdef int tidy(self) except -1
    cdef object leave(self)
    cdef bint stained(self)


@cython.final
cdef class Runner:
    cdef readonly list slots
    cdef readonly list holdings         # in the order in which their jobs start
    cdef readonly int running           # slots with a job
    cdef readonly long finished         # jobs whose turn ended here, ever
    cdef public bint stopping           # slots end when their job does
    cdef public double start_until      # on the monotonic clock: after that nothing starts, since the worker may look dead
    cdef public bint in_turn            # queues take turns, entry by entry, instead of strict order
    cdef readonly object loop
    cdef readonly object lost           # lost(entry, place, why): a job that cannot be started
    cdef readonly object failed         # failed(run, error): an attempt that raised
    cdef readonly object returned       # returned(run, value): an attempt whose success leaves a record
    cdef readonly object on_room        # called when a slot finds nothing to do
    cdef readonly object stain          # stain(slot): its task cannot be used any more
    cdef object idle                    # slots without a job, the last to stop first
    cdef object base                    # the context of which each job gets a copy
    cdef double turn_ends               # when the loop has to get its turn
    cdef bint turn_on

    cdef bint next_job(self, Slot slot, double now) except -1
    cdef bint must_ask(self, Holding holding, Frame frame, int place, Line line)
    cdef int wake(self, int most) except -1
    cdef bint out_of_turn(self, double now) except -1
