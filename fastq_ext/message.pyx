"""Reads messages and frames. Every byte comes from outside: nothing is read before it is known to be there."""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport UINT32_MAX, uint32_t

from fastq_ext.layout cimport (
    AT_LENGTH,
    DUE,
    EXPIRES,
    EXTRAS,
    RETENTION,
    TRACKED,
    UID_SIZE,
    VERSION,
    is_utf8,
    load32,
)

from msgspec import DecodeError
from msgspec.msgpack import decode

from fastq_ext.packer import Packer, PackResult
from fastq_ext.template import EncodeError, Template
from fastq_ext.uid import new_uid

cdef int NUMBERS = DUE | EXPIRES | RETENTION


cdef uint32_t size_at(const unsigned char* at, size_t left) noexcept:
    """The size of the message that begins here, or 0 when no message of that length can be in what is left."""
    cdef size_t size
    if left < FIXED_SIZE:
        return 0
    size = <size_t>load32(at + AT_LENGTH) + 4
    return <uint32_t>size if FIXED_SIZE <= size <= min(left, UINT32_MAX) else 0


cdef uint32_t names_end(const unsigned char* at) noexcept:
    return FIXED_SIZE + load16(at + AT_TASK_SIZE) + load16(at + AT_LOCK_KEY_SIZE) + load16(at + AT_JOB_ID_SIZE)


cdef uint32_t fields_size(int flags) noexcept:
    """Of the optional fields that are numbers: they stand before EXTRAS."""
    flags &= NUMBERS
    return 8 * ((flags & 1) + (flags >> 1 & 1) + (flags >> 2 & 1))


cdef uint32_t find_body(const unsigned char* at, uint32_t size) noexcept:
    """Where the payload begins; 0 when the message is not sound."""
    cdef uint32_t task = load16(at + AT_TASK_SIZE)
    cdef uint32_t lock_key = load16(at + AT_LOCK_KEY_SIZE)
    cdef uint32_t job_id = load16(at + AT_JOB_ID_SIZE)
    cdef const unsigned char* names = at + FIXED_SIZE
    cdef size_t end = names_end(at)
    if at[AT_VERSION] != VERSION:
        return FIXED_SIZE
    if end > size:
        return 0
    if not (is_utf8(names, task) and is_utf8(names + task, lock_key) and is_utf8(names + task + lock_key, job_id)):
        return 0
    end += fields_size(at[AT_FLAGS])
    if at[AT_FLAGS] & EXTRAS:
        if end + 4 > size:
            return 0
        end += 4 + <size_t>load32(at + end)
    return <uint32_t>end if end <= size else 0


cdef Message view(bytes data, const unsigned char* at, uint32_t size, uint32_t body):
    cdef Message message = Message.__new__(Message)
    message.data, message.at, message.size, message.body = data, at, size, body
    return message


cdef inline bytes copy_of(const unsigned char* at, size_t size):
    return PyBytes_FromStringAndSize(<const char*>at, size)


# What a Message that was made without __init__ looks at, so that no way of making one leads to a wild read.
cdef unsigned char[FIXED_SIZE] NOTHING


@cython.freelist(64)
cdef class Message:
    def __cinit__(self):
        self.data = b""
        self.at = NOTHING
        self.size = self.body = FIXED_SIZE

    def __init__(self, bytes raw not None):
        cdef const unsigned char* at = <const unsigned char*>PyBytes_AS_STRING(raw)
        cdef size_t size = PyBytes_GET_SIZE(raw)
        cdef uint32_t body = find_body(at, <uint32_t>size) if size_at(at, size) == size > 0 else 0
        if body == 0:
            raise ValueError("not a sound message")
        self.data, self.at, self.size, self.body = raw, at, <uint32_t>size, body

    @property
    def raw(self):
        return copy_of(self.at, self.size)

    @property
    def version(self):
        return self.at[AT_VERSION]

    @property
    def flags(self):
        return self.at[AT_FLAGS]

    @property
    def crashes(self):
        return self.at[AT_CRASHES]

    @property
    def policy(self):
        return self.at[AT_POLICY]

    @property
    def attempt(self):
        return load16(self.at + AT_ATTEMPT)

    @property
    def uid(self):
        return copy_of(self.at + AT_UID, UID_SIZE)

    @property
    def enqueued_at(self):
        return load64(self.at + AT_ENQUEUED)

    @property
    def lock_ttl_ms(self):
        return load64(self.at + AT_LOCK_TTL)

    @property
    def tracked(self):
        return self.at[AT_FLAGS] & TRACKED != 0

    @property
    def task(self):
        return self.name(0).decode()

    @property
    def lock_key(self):
        return self.name(1)

    @property
    def job_id(self):
        return self.name(2).decode()

    @property
    def due_ms(self):
        return self.number(DUE)

    @property
    def expires_ms(self):
        return self.number(EXPIRES)

    @property
    def retention_ms(self):
        return self.number(RETENTION)

    @property
    def extras(self):
        cdef bytes field = self.field(EXTRAS)
        if not field:
            return {}
        try:
            extras = decode(field[4:])
        except (DecodeError, RecursionError) as error:
            raise ValueError(f"extras that are not msgpack: {error}") from None
        if type(extras) is not dict or not all(type(key) is str for key in extras):
            raise ValueError("extras that are not a map with str keys")
        return extras

    @property
    def payload(self):
        return copy_of(self.at + self.body, self.size - self.body)

    def replace(self, *, attempt=None, crashes=None, due_ms=None, bytes extras=None, bytes payload=None):
        cdef bytes due = self.field(DUE)
        cdef bytes more = self.field(EXTRAS)
        cdef bytearray changed
        cdef bytes body
        if self.at[AT_VERSION] != VERSION:
            raise ValueError(f"a message of version {self.at[AT_VERSION]}, whose fields are unknown")
        if due_ms is not None:
            due = number_bytes("due_ms", due_ms, 8) if due_ms else b""
        if extras is not None:
            more = number_bytes("size of extras", len(extras), 4) + extras if extras else b""
        body = self.payload if payload is None else payload

        changed = bytearray(copy_of(self.at, names_end(self.at)))
        changed += due + self.field(EXPIRES) + self.field(RETENTION) + more + body
        changed[AT_LENGTH:AT_LENGTH + 4] = number_bytes("size", len(changed) - 4, 4)
        changed[AT_FLAGS] = self.at[AT_FLAGS] & ~(DUE | EXTRAS) | (DUE if due else 0) | (EXTRAS if more else 0)
        if attempt is not None:
            changed[AT_ATTEMPT:AT_ATTEMPT + 2] = number_bytes("attempt", attempt, 2)
        if crashes is not None:
            changed[AT_CRASHES:AT_CRASHES + 1] = number_bytes("crashes", crashes, 1)
        return bytes(changed)

    cdef bytes name(self, int which):
        """The task's name, the lock key or the job_id: they lie in this order."""
        cdef uint32_t begin = FIXED_SIZE
        cdef int i
        if self.at[AT_VERSION] != VERSION:
            return b""
        for i in range(which):
            begin += load16(self.at + AT_TASK_SIZE + 2 * i)
        return copy_of(self.at + begin, load16(self.at + AT_TASK_SIZE + 2 * which))

    cdef bytes field(self, int flag):
        """An optional field as it stands there (EXTRAS with its length), or b"" when the message has none."""
        cdef int flags = self.at[AT_FLAGS]
        cdef uint32_t begin
        if self.at[AT_VERSION] != VERSION or not flags & flag:
            return b""
        begin = names_end(self.at) + fields_size(flags & (flag - 1))
        return copy_of(self.at + begin, self.body - begin if flag == EXTRAS else 8)

    cdef object number(self, int flag):
        cdef bytes field = self.field(flag)
        return load64(<const unsigned char*>PyBytes_AS_STRING(field)) if field else None


cdef bytes number_bytes(str what, object number, int size):
    try:
        return int(number).to_bytes(size, "little")
    except OverflowError:
        raise ValueError(f"{what} does not fit in {size} bytes: {number}") from None


cdef class Frame:
    def __cinit__(self, bytes data not None):
        cdef size_t size = PyBytes_GET_SIZE(data)
        cdef uint32_t begin = 0
        cdef uint32_t message, body
        self.data = data
        self.at = <const unsigned char*>PyBytes_AS_STRING(data)
        while self.count < MAX_MESSAGES:
            message = size_at(self.at + begin, size - begin)
            if message == 0 or <size_t>begin + message > UINT32_MAX:
                break
            body = find_body(self.at + begin, message)
            if body == 0:
                break
            self.body[self.count] = begin + body
            begin += message
            self.count += 1
            self.offset[self.count] = begin

    def __len__(self):
        return self.count

    def __getitem__(self, Py_ssize_t i):
        i = self.place(i)
        return view(self.data, message_at(self, i), message_size(self, i), self.body[i] - self.offset[i])

    def message_bytes(self, Py_ssize_t i):
        i = self.place(i)
        return copy_of(message_at(self, i), message_size(self, i))

    @property
    def rest(self):
        return self.data[self.offset[self.count]:]

    cdef Py_ssize_t place(self, Py_ssize_t i) except -1:
        if i < 0:
            i += self.count
        if not 0 <= i < self.count:
            raise IndexError("no such message in this frame")
        return i
