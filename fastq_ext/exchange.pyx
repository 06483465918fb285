"""Sends and receives on a blocking socket. Of a call to a server near by, Python's own way would be a tenth."""
import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from libc.errno cimport EINTR, errno

from fastq_ext.clock cimport monotonic


cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int POLLIN
    int poll(pollfd* fds, unsigned long count, int milliseconds)


cdef extern from "<sys/socket.h>" nogil:
    ssize_t send_ "send"(int fd, const void* data, size_t size, int flags)
    ssize_t recv_ "recv"(int fd, void* into, size_t size, int flags)


cdef enum:
    ROOM = 1 << 14      # bytes of one receive, on the stack of a thread that may have little of it
    SLEEPS = 50         # answers that are slept for at once, after one that took longer


cdef inline bint is_there(int fd) noexcept nogil:
    """Whether a receive would return at once."""
    cdef pollfd asked
    asked.fd, asked.events, asked.revents = fd, POLLIN, 0
    return poll(&asked, 1, 0) == 1


cdef class Exchange:
    cdef int fd
    cdef int sleeps
    cdef double look_out_for

    def __init__(self, int fd, *, double look_out=0.0002):
        self.fd = fd
        self.look_out_for = look_out if (os.cpu_count() or 1) > 1 else 0

    def send(self, bytes data not None):
        cdef const char* at = PyBytes_AS_STRING(data)
        cdef size_t left = PyBytes_GET_SIZE(data)
        cdef ssize_t n
        while left:
            with nogil:
                n = send_(self.fd, at, left, 0)
            if n < 0:
                self.failed()
                continue
            at += n
            left -= n
            if left:
                PyErr_CheckSignals()    # it is a signal that cuts a send on a blocking socket

    def receive(self):
        cdef char[ROOM] room
        cdef ssize_t n
        while True:
            if self.sleeps:
                self.sleeps -= 1
            elif self.look_out_for and not self.look_out():
                self.sleeps = SLEEPS
                PyErr_CheckSignals()    # what came meanwhile would not wake the thread
            with nogil:
                n = recv_(self.fd, room, ROOM, 0)
            if n >= 0:
                return PyBytes_FromStringAndSize(room, n)
            self.failed()

    def ended(self):
        return is_there(self.fd)

    cdef bint look_out(self) noexcept:
        """Whether something has come by the end of the time."""
        cdef bint seen
        cdef double until
        with nogil:
            until = monotonic() + self.look_out_for
            while not (seen := is_there(self.fd)) and monotonic() < until:
                pass
        return seen

    cdef int failed(self) except -1:
        """Raises what went wrong; a signal whose handler did not raise is nothing wrong."""
        if errno != EINTR:
            PyErr_SetFromErrno(OSError)
        PyErr_CheckSignals()
        return 0
