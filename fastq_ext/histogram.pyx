"""Histograms of durations in shared memory: adding to one makes no object and takes no lock."""
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer


cdef class Histogram:
    """Counts durations by `bounds` (seconds, growing) in `cells`: writable memory for len(bounds) + 2 doubles."""

    def __cinit__(self, cells, bounds):
        self.size = len(bounds)
        if not 0 < self.size <= MAX_BOUNDS:
            raise ValueError(f"from 1 to {MAX_BOUNDS} bounds are possible, not {self.size}")
        for i, bound in enumerate(bounds):
            self.bounds[i] = bound
        PyObject_GetBuffer(cells, &self.view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        if self.view.len != (self.size + 2) * <Py_ssize_t>sizeof(double):
            raise ValueError(f"{self.size} bounds need {self.size + 2} cells of 8 bytes, not {self.view.len} bytes")
        self.counts = <double*>self.view.buf

    def __dealloc__(self):
        PyBuffer_Release(&self.view)  # does nothing when there is none

    def observe(self, double seconds):
        """Count a duration."""
        self.add(seconds)

    cdef int add(self, double seconds) except -1:
        cdef int i = 0
        while i < self.size and seconds > self.bounds[i]:
            i += 1
        self.counts[i] += 1
        self.counts[self.size + 1] += seconds
        return 0
