"""Class map of canonical.pyx."""
cimport cython

from fastq_ext.canonical_buffer cimport Buffer, Group
from fastq_ext.canonical_form cimport Step


cdef struct Parameter:
    # One parameter but **kwargs. Every pointer is borrowed from the tuples of its Signature.
    void* name
    void* default               # NULL: the parameter is required
    const char* name_form       # canonical form of the name
    size_t name_size
    const char* default_form    # canonical form of the default; NULL: it has none and is compared by identity
    size_t default_size
    int kind
    Py_ssize_t position         # its place among the positional arguments; -1: by keyword only


@cython.final
cdef class Signature:
    cdef tuple held             # the objects that the parameters point into
    cdef Parameter* parameters  # in order of declaration
    cdef Parameter** in_order   # the same, in the order in which they are hashed
    cdef Py_ssize_t count
    cdef Py_ssize_t positional  # how many take one positional argument each
    cdef str rest               # name of *args, or None
    cdef str extra              # name of **kwargs, or None
    cdef frozenset by_keyword   # names that can be passed by keyword
    cdef frozenset by_place     # the other names: positional parameters and *args

    cdef object digest_call(self, tuple args, dict kwargs, tuple only)
    cdef Py_ssize_t check(self, tuple args, dict kwargs) except -1
    cdef int refuse_keyword(self, dict kwargs) except -1
    cdef int write_argument(self, Buffer* out, Group* group, Parameter* parameter, object value, Step* at) except -1
    cdef int write_extras(self, Buffer* out, Group* group, dict kwargs, tuple only, Step* at) except -1


@cython.final
cdef class DigestKey:
    cdef Signature signature
    cdef bytes prefix           # of every key
    cdef tuple only             # the parameters that count, or None
    cdef object error           # makes what is raised of a TypeError or ValueError

    cdef bytes key(self, tuple args, dict kwargs)
