cimport cython
from libc.stdint cimport uint64_t

from fastq_ext.msgpack cimport Writer


@cython.final
cdef class Template:
    cdef bytes head                     # the fixed part and the task name, ready to copy
    cdef bytes tail                     # the fields RETENTION and EXTRAS
    cdef readonly uint64_t lock_ttl_ms
    cdef uint64_t expires_in_ms
    cdef bint expires
    cdef readonly size_t max_payload

    # The parameters, to name the one that is wrong and to find those that are rich.
    cdef tuple positional               # names in order
    cdef str rest                       # of *rest, or None
    cdef frozenset named                # all but *rest and **extra
    cdef str extra                      # of **extra, or None
    cdef frozenset rich
    cdef object rich_encode

    # What a call usually looks like: so many positional arguments, or keywords out of `takes` with all of `needs`. Of any other
    # `check` is asked; None: anything goes.
    cdef Py_ssize_t least
    cdef Py_ssize_t most
    cdef frozenset takes
    cdef frozenset needs
    cdef object check

    # Writes one message; what was written of it is the caller's to take back when this raises.
    cdef int write(
        self, Writer* w, tuple args, dict kwargs, const unsigned char* uid, uint64_t now_ms, uint64_t due_ms,
        bytes lock_key, bytes job_id,
    ) except -1
    cdef int look_at(self, tuple args, dict kwargs) except -1
    cdef int read_parameters(self, object parameters) except -1
    cdef int write_head(
        self, Writer* w, const unsigned char* uid, uint64_t now_ms, uint64_t due_ms, bytes lock_key, bytes job_id
    ) except -1
    cdef int write_args(self, Writer* w, tuple args) except -1
    cdef int write_kwargs(self, Writer* w, dict kwargs) except -1
    cdef int write_rich(self, Writer* w, object value) except -1
    cdef str positional_name(self, Py_ssize_t i)
    cdef str keyword_name(self, object key)
    cdef object explain(self, object refused)
