cimport cython
from cpython.buffer cimport Py_buffer

cdef enum:
    MAX_BOUNDS = 32


# How often durations fell between which bounds, in memory that other processes may read. No lock: one process writes, and a reader
# that comes in between is wrong by one duration.
@cython.final
cdef class Histogram:
    cdef Py_buffer view                 # keeps the memory where it is
    cdef double* counts                 # one more than there are bounds, then the sum of all durations
    cdef double[MAX_BOUNDS] bounds      # seconds, growing: a duration counts in the first that it does not exceed
    cdef int size                       # how many bounds there are

    cdef int add(self, double seconds) except -1
