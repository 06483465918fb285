from libc.stdint cimport uint32_t
from libc.stdlib cimport free
from libc.string cimport memcpy


cdef enum:
    MAX_DEPTH = 64      # levels of lists and dicts in an argument


# Bytes that are being written. It begins in an array of the caller's and moves to the heap when that is full.
cdef struct Writer:
    unsigned char* at
    size_t used
    size_t room         # may be used up without growing: the smaller of size and limit
    size_t size
    size_t limit        # growing beyond it is refused (Refused.too_large)
    bint on_heap


cdef inline void set_limit(Writer* w, size_t limit) noexcept:
    w.limit = limit
    w.room = min(w.size, limit)


cdef inline void open_writer(Writer* w, unsigned char* array, size_t size, size_t limit) noexcept:
    w.at = array
    w.used = 0
    w.size = size
    w.on_heap = False
    set_limit(w, limit)


cdef inline void close_writer(Writer* w) noexcept:
    if w.on_heap:
        free(w.at)
    w.on_heap = False


cdef int grow(Writer* w, size_t more) except -1


cdef inline int reserve(Writer* w, size_t more) except -1:
    """Make sure that `more` bytes fit behind what is written: every write passes here first."""
    if w.room - w.used < more:
        grow(w, more)
    return 0


cdef inline int write_raw(Writer* w, const void* start, size_t size) except -1:
    reserve(w, size)
    memcpy(w.at + w.used, start, size)
    w.used += size
    return 0


cdef int write_array_head(Writer* w, uint32_t count) except -1
cdef int write_map_head(Writer* w, uint32_t count) except -1
cdef int write_str(Writer* w, object value) except -1
# Writes one value that may nest `depth` levels deep. Raises Refused.
cdef int write_value(Writer* w, object value, int depth) except -1
