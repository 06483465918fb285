"""Packs messages into frames, straight into the frame's bytes: the bulk enqueue's inner loop."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_Check
from libc.stdint cimport uint64_t
from libc.string cimport memcpy, memmove

from fastq_ext.canonical cimport DigestKey
from fastq_ext.layout cimport FIXED_SIZE, MAX_MESSAGES, UID_SIZE, load32
from fastq_ext.msgpack cimport close_writer, open_writer, reserve, set_limit, write_raw
from fastq_ext.template cimport Template
from fastq_ext.uid cimport write_uid

cdef enum:
    LOCK_VALUE_SIZE = UID_SIZE + 1
    WAITING = 87    # b"W"

cdef size_t NO_LIMIT = <size_t>-1
cdef dict NO_KEYWORDS = {}


cdef class PackResult:
    """What one call of pack() did."""


cdef class Packer:
    def __cinit__(self, int max_jobs=MAX_MESSAGES, size_t max_bytes=65536):
        open_writer(&self.frame, NULL, 0, NO_LIMIT)
        open_writer(&self.uids, NULL, 0, NO_LIMIT)
        if not 1 <= max_jobs <= MAX_MESSAGES:
            raise ValueError(f"a frame has 1 to {MAX_MESSAGES} messages")
        self.max_jobs = max_jobs
        self.max_bytes = max_bytes
        self.done = []
        self.locks = []

    def __dealloc__(self):
        close_writer(&self.frame)
        close_writer(&self.uids)

    def add(self, bytes message not None):
        cdef size_t begin = self.frame.used
        cdef size_t size = PyBytes_GET_SIZE(message)
        self.refuse_while_packing()
        if size < FIXED_SIZE or load32(<const unsigned char*>PyBytes_AS_STRING(message)) != size - 4:
            raise ValueError("not a message")
        set_limit(&self.frame, NO_LIMIT)
        write_raw(&self.frame, PyBytes_AS_STRING(message), size)
        self.take_in(begin)

    def take(self):
        self.refuse_while_packing()
        self.cut(self.frame.used)
        frames, self.done = self.done, []
        return frames

    def pack(
        self,
        Template template not None,
        items,
        uint64_t now_ms,
        Py_ssize_t jobs,
        Py_ssize_t size,
        key_of=None,
        bytearray uids=None,
        bytes key_prefix not None=b"",
    ):
        cdef PackResult result = PackResult()
        self.refuse_while_packing()
        if key_of is not None:
            if self.jobs or self.done:
                raise ValueError("take() first: messages that were added have no place among those with locks")
            self.keys = []
        self.packing = True
        try:
            self.pack_items(result, template, items, now_ms, jobs, size, key_of, key_prefix)
            self.cut(self.frame.used)
            result.frames, self.done = self.done, []
            result.locks, self.locks = self.locks, []
            if uids is not None:
                uids += PyBytes_FromStringAndSize(<char*>self.uids.at, self.uids.used)
        finally:
            self.packing = False
            self.keys = None
            self.uids.used = 0
            self.uids_cut = 0
        return result

    cdef int pack_items(
        self, PackResult result, Template template, object items, uint64_t now_ms, Py_ssize_t jobs, Py_ssize_t size,
        object key_of, bytes key_prefix,
    ) except -1:
        cdef size_t before = 0
        cdef Py_ssize_t packed = 0
        if jobs <= 0 or size <= 0:
            return 0
        try:
            for item in items:
                if type(item) is tuple:
                    packed += self.pack_one(template, <tuple>item, NO_KEYWORDS, now_ms, key_of, key_prefix)
                elif type(item) is dict and has_str_keys(<dict>item):
                    packed += self.pack_one(template, (), <dict>item, now_ms, key_of, key_prefix)
                else:
                    result.has_foreign = True
                    result.foreign = item
                    break
                result.count += 1
                if result.count >= jobs or packed >= size:
                    break
            else:
                result.ended = True
        except BaseException as error:
            result.error = error
        return 0

    cdef Py_ssize_t pack_one(
        self, Template template, tuple args, dict kwargs, uint64_t now_ms, object key_of, bytes key_prefix
    ) except -1:
        """Returns the size of the message. When it raises, the packer is as it was before."""
        cdef size_t begin = self.frame.used
        cdef size_t uid = self.uids.used
        cdef size_t size
        cdef bytes key = b""
        template.look_at(args, kwargs)
        if key_of is not None:
            # The one kind of key that most jobs have costs no call into Python.
            key = (<DigestKey>key_of).key(args, kwargs) if type(key_of) is DigestKey else key_of(args, dict(kwargs))
            if not key:
                raise ValueError("key_of returned no key")
        reserve(&self.uids, UID_SIZE)
        write_uid(self.uids.at + uid, now_ms)
        set_limit(&self.frame, begin + template.max_payload)
        try:
            template.write(&self.frame, args, kwargs, self.uids.at + uid, now_ms, 0, key, b"")
            size = self.frame.used - begin
            self.take_in(begin)
        except BaseException:
            self.frame.used = begin
            raise
        self.uids.used += UID_SIZE
        if key_of is not None:
            self.keys.append(key_prefix + key)
        return size

    cdef int take_in(self, size_t begin) except -1:
        """Count the message that was written from `begin` on, in a new frame if the open one has no place for it."""
        if self.jobs and (self.jobs == self.max_jobs or self.frame.used > self.max_bytes):
            self.cut(begin)
        self.jobs += 1
        return 0

    cdef int cut(self, size_t end) except -1:
        """Close the open frame at `end`; what stands behind begins the next."""
        if self.jobs == 0:
            return 0
        frame = PyBytes_FromStringAndSize(<char*>self.frame.at, end)
        if self.keys is not None:
            values = lock_values(self.uids.at + self.uids_cut, self.jobs)
            self.locks.append((values, self.keys))
            self.keys = []
            self.uids_cut += self.jobs * UID_SIZE
        self.done.append((frame, self.jobs))
        self.frame.used -= end
        memmove(self.frame.at, self.frame.at + end, self.frame.used)
        self.jobs = 0
        return 0

    cdef int refuse_while_packing(self) except -1:
        if self.packing:
            raise RuntimeError("this packer is at work")
        return 0


cdef bint has_str_keys(dict items) noexcept:
    cdef Py_ssize_t position = 0
    cdef PyObject* key
    while PyDict_Next(items, &position, &key, NULL):
        if not PyUnicode_Check(<object>key):
            return False
    return True


cdef bytes lock_values(const unsigned char* uids, int jobs):
    """What the locks of these jobs hold: uid and state each."""
    cdef bytes values = PyBytes_FromStringAndSize(NULL, jobs * LOCK_VALUE_SIZE)
    cdef char* at = PyBytes_AS_STRING(values)
    cdef int i
    for i in range(jobs):
        memcpy(at, uids + i * UID_SIZE, UID_SIZE)
        at[UID_SIZE] = WAITING
        at += LOCK_VALUE_SIZE
    return values
