cimport cython
from libc.stdint cimport uint64_t

from fastq_ext.msgpack cimport Writer
from fastq_ext.template cimport Template


@cython.final
cdef class PackResult:
    cdef readonly list frames
    cdef readonly list locks
    cdef readonly Py_ssize_t count
    cdef readonly bint ended
    cdef readonly bint has_foreign
    cdef readonly object foreign
    cdef readonly object error


@cython.final
cdef class Packer:
    cdef int max_jobs           # of a frame
    cdef size_t max_bytes       # of a frame, unless it holds a single message
    cdef Writer frame           # the frame that is being filled
    cdef int jobs               # messages in it
    cdef list done              # frames that are full: (bytes, count)
    cdef Writer uids            # of what this call of pack() has packed
    cdef size_t uids_cut        # those before are in frames that are done
    cdef list keys              # lock keys of the frame that is being filled, or None
    cdef list locks             # of the frames that are done: (values, keys)
    cdef bint packing           # a pack() is on: what it calls must not call this packer

    cdef int pack_items(
        self, PackResult result, Template template, object items, uint64_t now_ms, Py_ssize_t jobs, Py_ssize_t size,
        object key_of, bytes key_prefix,
    ) except -1
    cdef Py_ssize_t pack_one(
        self, Template template, tuple args, dict kwargs, uint64_t now_ms, object key_of, bytes key_prefix
    ) except -1
    cdef int take_in(self, size_t begin) except -1
    cdef int cut(self, size_t end) except -1
    cdef int refuse_while_packing(self) except -1
