"""Writes messages. What all messages of a task share is made once; a call adds its uid, times and arguments."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from fastq_ext.layout cimport (
    AT_ATTEMPT,
    AT_ENQUEUED,
    AT_FLAGS,
    AT_JOB_ID_SIZE,
    AT_LENGTH,
    AT_LOCK_KEY_SIZE,
    AT_LOCK_TTL,
    AT_POLICY,
    AT_TASK_SIZE,
    AT_UID,
    AT_VERSION,
    DUE,
    EXPIRES,
    EXTRAS,
    FIXED_SIZE,
    RETENTION,
    TRACKED,
    UID_SIZE,
    VERSION,
    is_utf8,
    store16,
    store32,
    store64,
)
from fastq_ext.msgpack cimport (
    MAX_DEPTH,
    Writer,
    close_writer,
    open_writer,
    reserve,
    write_array_head,
    write_map_head,
    write_raw,
    write_str,
    write_value,
)

from fastq_ext.msgpack import Refused

cdef enum:
    FIRST_ROOM = 1024       # on the stack: most messages never need the heap
    MOST_ARGUMENTS = 1 << 30
    MOST_BYTES = 1 << 30    # of a message: Redis takes no string above 512 MiB

# Times and spans in ms: what Lua, whose numbers are doubles, still counts exactly.
cdef uint64_t MOST_MS = 1 << 53


class EncodeError(TypeError):
    path = ""
    too_large = False

    def __init__(self, reason, path="", too_large=False):
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.too_large = too_large


cdef class Template:
    def __cinit__(
        self,
        str task not None,
        *,
        uint8_t policy=0,
        uint64_t lock_ttl_ms=0,
        bint tracked=False,
        uint64_t retention_ms=0,
        expires_in_ms=None,
        bytes extras not None=b"",
        parameters=(),
        rich=(),
        rich_encode=None,
        Py_ssize_t least=0,
        Py_ssize_t most=MOST_ARGUMENTS,
        takes=(),
        needs=(),
        check=None,
        size_t max_payload=1 << 20,
    ):
        cdef unsigned char[FIXED_SIZE] fixed
        cdef unsigned char[8] field
        cdef bytes name = task.encode()
        if not name or len(name) > 0xFFFF:
            raise ValueError("a task's name has 1 to 65535 bytes")
        if not FIXED_SIZE <= max_payload <= MOST_BYTES:
            raise ValueError(f"max_payload is {FIXED_SIZE} to {MOST_BYTES} bytes")
        if rich and rich_encode is None:
            raise ValueError("rich parameters need rich_encode")

        memset(fixed, 0, FIXED_SIZE)
        fixed[AT_VERSION] = VERSION
        fixed[AT_POLICY] = policy
        fixed[AT_FLAGS] = TRACKED if tracked else 0
        store16(fixed + AT_ATTEMPT, 1)
        store16(fixed + AT_TASK_SIZE, <uint16_t>len(name))
        self.tail = b""
        if retention_ms:
            fixed[AT_FLAGS] |= RETENTION
            store64(field, retention_ms)
            self.tail += field[:8]
        if extras:
            fixed[AT_FLAGS] |= EXTRAS
            store32(field, <uint32_t>len(extras))
            self.tail += field[:4] + extras
        if expires_in_ms is not None:
            fixed[AT_FLAGS] |= EXPIRES
            self.expires = True
            self.expires_in_ms = expires_in_ms
        if max(lock_ttl_ms, retention_ms, self.expires_in_ms) > MOST_MS:
            raise ValueError("a span has at most 2**53 ms")
        self.head = PyBytes_FromStringAndSize(<char*>fixed, FIXED_SIZE) + name
        self.lock_ttl_ms = lock_ttl_ms
        self.max_payload = max_payload
        self.rich = frozenset(rich)
        self.rich_encode = rich_encode
        self.least, self.most, self.check = least, most, check
        self.takes, self.needs = frozenset(takes), frozenset(needs)
        self.read_parameters(parameters)

    cdef int read_parameters(self, object parameters) except -1:
        cdef list positional = []
        cdef list keywords = []
        cdef list names = positional
        for name in parameters:
            if name.startswith("**"):
                self.extra = name[2:]
            elif name.startswith("*"):
                self.rest = name[1:] or None
                names = keywords
            else:
                names.append(name)
        self.positional = tuple(positional)
        self.named = frozenset(positional + keywords)
        return 0

    def encode(
        self,
        tuple args not None,
        dict kwargs not None,
        bytes uid not None,
        uint64_t now_ms,
        uint64_t due_ms=0,
        bytes lock_key not None=b"",
        bytes job_id not None=b"",
    ):
        cdef unsigned char[FIRST_ROOM] room
        cdef Writer w
        if PyBytes_GET_SIZE(uid) != UID_SIZE:
            raise ValueError("a uid has 16 bytes")
        open_writer(&w, room, FIRST_ROOM, self.max_payload)
        try:
            self.write(&w, args, kwargs, <const unsigned char*>PyBytes_AS_STRING(uid), now_ms, due_ms, lock_key, job_id)
            return PyBytes_FromStringAndSize(<char*>w.at, w.used)
        finally:
            close_writer(&w)

    cdef int write(
        self, Writer* w, tuple args, dict kwargs, const unsigned char* uid, uint64_t now_ms, uint64_t due_ms,
        bytes lock_key, bytes job_id,
    ) except -1:
        cdef size_t begin = w.used
        try:
            self.write_head(w, uid, now_ms, due_ms, lock_key, job_id)
            self.write_args(w, args)
            self.write_kwargs(w, kwargs)
        except Refused as refused:
            raise self.explain(refused) from refused.__cause__
        store32(w.at + begin + AT_LENGTH, <uint32_t>(w.used - begin - 4))
        return 0

    cdef int look_at(self, tuple args, dict kwargs) except -1:
        """Refuses arguments that the function does not take; the usual ones are told by their number or their names."""
        cdef Py_ssize_t needed = 0
        if self.check is None or (not kwargs and self.least <= len(args) <= self.most):
            return 0
        if not args:
            for name in kwargs:
                if name not in self.takes:
                    break
                needed += name in self.needs
            else:
                if needed == len(self.needs):
                    return 0
        self.check(args, kwargs)
        return 0

    cdef int write_head(
        self, Writer* w, const unsigned char* uid, uint64_t now_ms, uint64_t due_ms, bytes lock_key, bytes job_id
    ) except -1:
        """All that stands before the payload."""
        cdef size_t size = PyBytes_GET_SIZE(self.head)
        cdef size_t names, fields
        cdef unsigned char* at
        if max(now_ms, due_ms) > MOST_MS:
            raise ValueError("a time has at most 2**53 ms")
        names = PyBytes_GET_SIZE(lock_key) + PyBytes_GET_SIZE(job_id)
        fields = (8 if due_ms else 0) + (8 if self.expires else 0) + PyBytes_GET_SIZE(self.tail)
        reserve(w, size + names + fields)
        at = w.at + w.used
        memcpy(at, PyBytes_AS_STRING(self.head), size)
        memcpy(at + AT_UID, uid, UID_SIZE)
        store64(at + AT_ENQUEUED, now_ms)
        if lock_key:
            store16(at + AT_LOCK_KEY_SIZE, name_size(lock_key, "lock key"))
            store64(at + AT_LOCK_TTL, self.lock_ttl_ms)
            size += put_bytes(at + size, lock_key)
        if job_id:
            store16(at + AT_JOB_ID_SIZE, name_size(job_id, "job_id"))
            size += put_bytes(at + size, job_id)
        if due_ms:
            at[AT_FLAGS] |= DUE
            store64(at + size, due_ms)
            size += 8
        if self.expires:
            store64(at + size, (due_ms or now_ms) + self.expires_in_ms)
            size += 8
        if self.tail:
            size += put_bytes(at + size, self.tail)
        w.used += size
        return 0

    cdef int write_args(self, Writer* w, tuple args) except -1:
        cdef Py_ssize_t i = 0
        write_array_head(w, 2)      # [args, kwargs]
        write_array_head(w, <uint32_t>len(args))
        try:
            for i in range(len(args)):
                if self.rich and self.positional_name(i) in self.rich:
                    self.write_rich(w, args[i])
                else:
                    write_value(w, args[i], MAX_DEPTH)
        except Refused as refused:
            refused.parameter = self.positional_name(i) or "args"
            if i >= len(self.positional):
                refused.steps.append(f"[{i - len(self.positional) if self.rest else i}]")
            refused.steps.append(refused.parameter)
            raise
        return 0

    cdef int write_kwargs(self, Writer* w, dict kwargs) except -1:
        cdef Py_ssize_t count = len(kwargs)
        cdef Py_ssize_t seen = 0
        cdef object key = None
        write_map_head(w, <uint32_t>count)
        if count == 0:
            return 0
        try:
            for key, value in kwargs.items():
                if not isinstance(key, str):
                    raise EncodeError(f"keywords are str, not {type(key).__name__}")
                seen += 1
                write_str(w, key)
                if self.rich and self.keyword_name(key) in self.rich:
                    self.write_rich(w, value)
                else:
                    write_value(w, value, MAX_DEPTH)
        except Refused as refused:
            refused.parameter = self.keyword_name(key)
            refused.steps.append(str.__str__(key))
            raise
        if seen != count:
            raise Refused("keywords that changed while they were encoded")
        return 0

    cdef int write_rich(self, Writer* w, object value) except -1:
        try:
            encoded = self.rich_encode(value)
        except Exception as error:
            raise Refused(str(error) or type(error).__name__) from error
        if not isinstance(encoded, bytes):
            raise Refused(f"rich_encode returned {type(encoded).__name__}, not bytes")
        return write_raw(w, PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded))

    cdef str positional_name(self, Py_ssize_t i):
        """The parameter that takes the positional argument `i`."""
        return <str>self.positional[i] if i < len(self.positional) else self.rest

    cdef str keyword_name(self, object key):
        """The parameter that takes the keyword `key`."""
        return self.extra if self.extra is not None and key not in self.named else key

    cdef object explain(self, object refused):
        cdef str path = "".join(reversed(refused.steps))
        cdef str reason = refused.reason
        if refused.too_large:
            path = refused.parameter    # which of its parts was the one too many is of no use
            reason = f"the message would be larger than {self.max_payload} bytes (max_payload)"
        elif refused.annotate:
            reason = f"{reason}; annotate the parameter {refused.parameter!r}, so that it comes back as what it was"
        return EncodeError(reason, path, refused.too_large)


cdef inline size_t put_bytes(unsigned char* at, bytes data) noexcept:
    memcpy(at, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return PyBytes_GET_SIZE(data)


cdef uint16_t name_size(bytes name, str what) except 0:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(name)
    if size > 0xFFFF:
        raise ValueError(f"a {what} has at most 65535 bytes")
    if not is_utf8(<const unsigned char*>PyBytes_AS_STRING(name), size):
        raise ValueError(f"a {what} is UTF-8")
    return <uint16_t>size
