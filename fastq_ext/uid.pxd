from libc.stdint cimport uint64_t


# Writes the next uid (16 bytes) at `into`. The caller holds the GIL.
cdef int write_uid(unsigned char* into, uint64_t now_ms) except -1
