"""Uids: UUIDv7, in order within a process, random between processes."""
import os

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from fastq_ext.layout cimport UID_SIZE, load64


cdef enum:
    POOL_SIZE = 4096    # one system call for 256 draws
    DRAW_SIZE = 16
    STEP_BACK = 10_000  # ms; a clock set back by more has been corrected: uids shall not tell the wrong time until it catches up

cdef unsigned char[POOL_SIZE] pool
cdef size_t pool_used = POOL_SIZE

# The last uid: its time and its 74 bits, counted up as long as the time stands.
cdef bint seeded = False
cdef uint64_t last_ms = 0
cdef uint64_t upper = 0     # 12 bits
cdef uint64_t lower = 0     # 62 bits


cdef int fill_pool() except -1:
    global pool_used
    cdef bytes fresh = os.urandom(POOL_SIZE)
    memcpy(pool, <const char*>fresh, POOL_SIZE)
    pool_used = 0
    return 0


cdef void draw(uint64_t ms) noexcept:
    """Begin a new millisecond. The highest bit stays 0: room to count up in."""
    global seeded, last_ms, upper, lower, pool_used
    seeded = True
    last_ms = ms
    upper = load64(pool + pool_used) & 0x7FF
    lower = load64(pool + pool_used + 8) & 0x3FFFFFFFFFFFFFFF
    pool_used += DRAW_SIZE


cdef void count_up() noexcept:
    global upper, lower
    lower = (lower + 1) & 0x3FFFFFFFFFFFFFFF
    if lower == 0:
        upper += 1
        if upper > 0xFFF:   # 2**73 uids in one millisecond; for completeness
            draw(last_ms + 1)


cdef int write_uid(unsigned char* into, uint64_t now_ms) except -1:
    cdef int i
    if now_ms >> 48:
        raise ValueError("now_ms does not fit in 48 bits")
    # os.urandom lets other threads run, so it comes before the state is looked at: what follows is one step.
    while pool_used + DRAW_SIZE > POOL_SIZE:
        fill_pool()
    if not seeded or now_ms > last_ms or last_ms - now_ms > STEP_BACK:
        draw(now_ms)
    else:
        count_up()
    for i in range(6):
        into[i] = <unsigned char>(last_ms >> (40 - 8 * i))
    into[6] = <unsigned char>(0x70 | (upper >> 8))
    into[7] = <unsigned char>upper
    for i in range(8):
        into[8 + i] = <unsigned char>(lower >> (56 - 8 * i))
    into[8] |= 0x80
    return 0


def new_uid(uint64_t now_ms):
    cdef unsigned char[UID_SIZE] uid
    write_uid(uid, now_ms)
    return PyBytes_FromStringAndSize(<char*>uid, UID_SIZE)


def _forget():
    """In a forked child: what was drawn belongs to the parent."""
    global seeded, pool_used
    seeded = False
    pool_used = POOL_SIZE


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
