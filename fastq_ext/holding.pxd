cimport cython
from libc.stdint cimport uint64_t

from fastq_ext.histogram cimport Histogram
from fastq_ext.message cimport Frame


# What a worker knows of one task on one queue: how its jobs are called, and what of them was not reported yet.
@cython.final
cdef class Line:
    cdef readonly object task           # the fastq.task.Task, for the slow paths
    cdef bytes name                     # as it stands in messages
    cdef object call                    # (*args, **kwargs) -> coroutine
    cdef object decode_any              # payload -> (args, kwargs)
    cdef list positional                # by number of arguments: the array of them -> args, or None
    cdef bint asks                      # its jobs ask the server before they start
    cdef bint keeps                     # its jobs leave a record when they succeed
    cdef readonly double timeout        # seconds; 0: none
    cdef public double mean             # seconds that a job holds a slot; 0: not known yet
    cdef public Histogram waits         # how long its jobs waited until they were run; None: nobody wants to know
    cdef public Histogram runs          # how long attempts take
    cdef long succeeded                 # since the last report

    cdef tuple decode(self, const unsigned char* payload, size_t size)
    cdef int took(self, double seconds) except -1


# One stream entry in a worker's hands. Places are those of the jobs in its frame.
@cython.final
cdef class Entry:
    cdef readonly bytes id
    cdef readonly int stream            # 0 stream, 1 front, 2 suspects
    cdef readonly Frame frame
    cdef readonly Holding holding
    cdef uint64_t settled               # places whose turn has ended
    cdef uint64_t unlock                # places that ended since the last report and whose lock is to be released
    cdef list outcomes                  # of places that ended since the last report in any other way than plain success
    cdef int open                       # places whose turn has not ended
    cdef int unreported                 # places that ended since the last report
    cdef int next                       # the first place that nobody has taken yet
    cdef bint touched                   # something ended since the last report
    cdef bint rest_ended                # what is behind the sound jobs was reported

    cdef bytes progress(self)
    cdef uint64_t fence(self) except? 0


# All that a worker has in hand of one queue, under one consumer name.
@cython.final
cdef class Holding:
    cdef readonly object keys           # fastq.keys.QueueKeys
    cdef readonly bytes worker          # the consumer name
    cdef public object heart            # of the worker: when it beat last, and its lease; None outside of one
    cdef public object now_ms           # the server's clock
    cdef public double clock_ahead      # seconds that the server's clock is ahead of the monotonic one; only kept for histograms
    cdef public bint gate               # jobs have to ask before they start
    cdef public bint dropped            # the queue has given everything to others: outcomes count no more
    cdef readonly dict entries          # id -> Entry
    cdef readonly dict lines            # task name -> Line
    cdef readonly int ready             # jobs that wait here for a slot
    cdef readonly int unsettled         # jobs whose turn has ended and of which the server does not know yet
    cdef readonly int suspects          # entries of the suspect lane in hand
    cdef int handed_out                 # jobs fetched since the last report
    cdef bytes unique_prefix
    cdef object queue                   # deque of Entry: jobs nobody has taken yet
    cdef object cleared                 # deque of (Entry, place, message or None): jobs that have asked and may start
    cdef public list asking             # (Entry, place) of jobs that have to ask
    cdef list touched
    cdef Line last                      # the line of the job before: most jobs have the same
    cdef dict counters
    cdef public set ended               # ids that end while somebody watches; None when nobody does
    cdef readonly object on_touched     # called when there is something to report
    cdef public object on_asking        # called when a job has to ask

    cdef int give(self, Entry entry, list places, bytes changed) except -1
    cdef Line line_of(self, Frame frame, int place)
    cdef int touch(self, Entry entry, int place) except -1
    cdef int succeed(self, Entry entry, int place, Line line) except -1
