"""What canonical.pyx needs of the writer of forms."""
from fastq_ext.canonical_buffer cimport Buffer, Group

cdef enum:
    MAP = 0x6d              # m

cdef enum:
    AT_ROOT                     # `key` is the name that paths begin with
    AT_INDEX                    # at `index` of a list
    AT_KEY                      # at the value under `key` of a dict, at the field or the argument `key`
    AT_KEYS                     # at one of the keys of a dict
    AT_ELEMENT                  # at an element of a set
    AT_VALUE                    # at the value of an Enum


cdef struct Step:
    # One step on the way from the arguments to the value in hand: a chain on the C stack, read only to find a cycle
    # and to name the place in an error.
    Step* outer                 # NULL at the root
    int depth                   # containers around what is inside this one
    int place                   # one of the constants above
    Py_ssize_t index
    void* container             # borrowed; whoever holds the step holds it
    void* key                   # borrowed, likewise


cdef void set_root(Step* root, str name) noexcept
cdef int enter(Step* step, Step* outer, object container, int place) except -1
cdef int write_value(Buffer* out, object value, Step* at) except -1
cdef int write_dict(Buffer* out, object mapping, Step* at) except -1
cdef int close_map(Buffer* out, Group* group, size_t size, Step* at) except -1
