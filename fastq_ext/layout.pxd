"""The byte layout of a message: where each field of the fixed part lies, and how its numbers are read and written.

docs/architecture.md, "Message", has the same as a table. Everything is little-endian and read byte by byte, so that
neither alignment nor the machine's own byte order matters.
"""
from libc.stdint cimport uint16_t, uint32_t, uint64_t


cdef enum:
    VERSION = 1
    MAX_MESSAGES = 64       # in one frame
    UID_SIZE = 16

    # Offsets of the fixed part.
    AT_LENGTH = 0
    AT_VERSION = 4
    AT_FLAGS = 5
    AT_CRASHES = 6
    AT_POLICY = 7
    AT_ATTEMPT = 8
    AT_UID = 10
    AT_ENQUEUED = 26
    AT_TASK_SIZE = 34
    AT_LOCK_KEY_SIZE = 36
    AT_JOB_ID_SIZE = 38
    AT_LOCK_TTL = 40
    FIXED_SIZE = 48         # the names begin here

    # Flags; the fields they announce stand behind the names in this order.
    DUE = 1
    EXPIRES = 2
    RETENTION = 4
    EXTRAS = 8
    TRACKED = 16


cdef inline uint16_t load16(const unsigned char* at) noexcept nogil:
    return <uint16_t>(at[0] | (at[1] << 8))


cdef inline uint32_t load32(const unsigned char* at) noexcept nogil:
    return at[0] | (<uint32_t>at[1] << 8) | (<uint32_t>at[2] << 16) | (<uint32_t>at[3] << 24)


cdef inline uint64_t load64(const unsigned char* at) noexcept nogil:
    return load32(at) | (<uint64_t>load32(at + 4) << 32)


cdef inline void store16(unsigned char* at, uint16_t number) noexcept nogil:
    at[0] = <unsigned char>number
    at[1] = <unsigned char>(number >> 8)


cdef inline void store32(unsigned char* at, uint32_t number) noexcept nogil:
    at[0] = <unsigned char>number
    at[1] = <unsigned char>(number >> 8)
    at[2] = <unsigned char>(number >> 16)
    at[3] = <unsigned char>(number >> 24)


cdef inline void store64(unsigned char* at, uint64_t number) noexcept nogil:
    store32(at, <uint32_t>number)
    store32(at + 4, <uint32_t>(number >> 32))


cdef inline bint is_utf8(const unsigned char* at, size_t size) noexcept nogil:
    """Whether the bytes are UTF-8 as Python decodes it: shortest forms only, no surrogates, up to U+10FFFF."""
    cdef const unsigned char* end = at + size
    cdef unsigned char first
    cdef unsigned char lowest, highest  # what the second byte may be
    cdef int more
    while at < end:
        first = at[0]
        at += 1
        if first < 0x80:
            continue
        lowest, highest = 0x80, 0xBF
        if 0xC2 <= first <= 0xDF:
            more = 1
        elif 0xE0 <= first <= 0xEF:
            more = 2
            if first == 0xE0:
                lowest = 0xA0
            elif first == 0xED:
                highest = 0x9F
        elif 0xF0 <= first <= 0xF4:
            more = 3
            if first == 0xF0:
                lowest = 0x90
            elif first == 0xF4:
                highest = 0x8F
        else:
            return False
        if end - at < more or at[0] < lowest or at[0] > highest:
            return False
        at += 1
        more -= 1
        while more:
            if at[0] & 0xC0 != 0x80:
                return False
            at += 1
            more -= 1
    return True
