# The clock that no one sets, in seconds.
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec


cdef inline double monotonic() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + now.tv_nsec * 1e-9
