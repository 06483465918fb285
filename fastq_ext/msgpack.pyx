"""Plain Python values as msgpack, each in its smallest form, so that they come back as what they were.

A value that would come back as something else (a tuple, a set, an Enum member) is refused, not converted.
"""
from datetime import datetime, timezone
from enum import Enum

from cpython.buffer cimport PyBUF_FULL_RO, PyBuffer_Release, PyBuffer_ToContiguous, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.datetime cimport (
    PyDateTime_Check,
    date_day,
    date_month,
    date_year,
    datetime_hour,
    datetime_microsecond,
    datetime_minute,
    datetime_second,
    datetime_tzinfo,
    import_datetime,
    timedelta_days,
    timedelta_microseconds,
    timedelta_seconds,
)
from cpython.dict cimport PyDict_Next
from cpython.float cimport PyFloat_AS_DOUBLE
from cpython.list cimport PyList_GET_SIZE
from cpython.memoryview cimport PyMemoryView_Check
from cpython.object cimport PyObject
from cpython.type cimport PyType_IsSubtype
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport malloc, realloc
from libc.string cimport memcpy

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    void* PyUnicode_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1
    unsigned long long PyLong_AsUnsignedLongLong(object number) except? 18446744073709551615ULL

import_datetime()

cdef object UTC = timezone.utc
# Not value.utcoffset(), which a subclass may override: this one returns None or a timedelta, or raises.
cdef object utcoffset = datetime.utcoffset
cdef int[12] DAYS_BEFORE_MONTH = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334]

cdef enum:
    DAYS_BEFORE_1970 = 719162   # since the first of January of the year 1


class Refused(Exception):
    reason = parameter = ""
    steps = ()
    annotate = too_large = False

    def __init__(self, reason, *, annotate=False, too_large=False):
        super().__init__(reason)
        self.reason = reason
        self.steps = []
        self.annotate = annotate
        self.too_large = too_large


# The buffer

cdef int grow(Writer* w, size_t more) except -1:
    cdef size_t size
    cdef unsigned char* at
    if more > w.limit - w.used:
        raise Refused("too large", too_large=True)
    size = max(2 * w.size, w.used + more)
    at = <unsigned char*>(realloc(w.at, size) if w.on_heap else malloc(size))
    if at is NULL:
        raise MemoryError
    if not w.on_heap and w.used:
        memcpy(at, w.at, w.used)
    w.at, w.size, w.on_heap = at, size, True
    set_limit(w, w.limit)
    return 0


# Numbers behind a marker byte, big-endian as msgpack wants them

cdef inline int write8(Writer* w, uint8_t marker, uint8_t number) except -1:
    reserve(w, 2)
    w.at[w.used] = marker
    w.at[w.used + 1] = number
    w.used += 2
    return 0


cdef inline void put(unsigned char* at, uint64_t number, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        at[i] = <unsigned char>(number >> (8 * (size - 1 - i)))


cdef inline int write16(Writer* w, uint8_t marker, uint16_t number) except -1:
    reserve(w, 3)
    w.at[w.used] = marker
    put(w.at + w.used + 1, number, 2)
    w.used += 3
    return 0


cdef inline int write32(Writer* w, uint8_t marker, uint32_t number) except -1:
    reserve(w, 5)
    w.at[w.used] = marker
    put(w.at + w.used + 1, number, 4)
    w.used += 5
    return 0


cdef inline int write64(Writer* w, uint8_t marker, uint64_t number) except -1:
    reserve(w, 9)
    w.at[w.used] = marker
    put(w.at + w.used + 1, number, 8)
    w.used += 9
    return 0


cdef inline int write_byte(Writer* w, uint8_t byte) except -1:
    reserve(w, 1)
    w.at[w.used] = byte
    w.used += 1
    return 0


# Values

cdef int write_array_head(Writer* w, uint32_t count) except -1:
    if count < 16:
        return write_byte(w, <uint8_t>(0x90 | count))
    if count < 0x10000:
        return write16(w, 0xDC, <uint16_t>count)
    return write32(w, 0xDD, count)


cdef int write_map_head(Writer* w, uint32_t count) except -1:
    if count < 16:
        return write_byte(w, <uint8_t>(0x80 | count))
    if count < 0x10000:
        return write16(w, 0xDE, <uint16_t>count)
    return write32(w, 0xDF, count)


cdef int write_str(Writer* w, object value) except -1:
    cdef const char* text
    cdef Py_ssize_t size
    if PyUnicode_IS_COMPACT_ASCII(value):
        text = <const char*>PyUnicode_DATA(value)
        size = PyUnicode_GET_LENGTH(value)
    else:
        try:
            text = PyUnicode_AsUTF8AndSize(value, &size)
        except UnicodeEncodeError:
            raise Refused("a str with a lone surrogate, which is not text; pass bytes") from None
    if size < 32:
        write_byte(w, <uint8_t>(0xA0 | size))
    elif size < 0x100:
        write8(w, 0xD9, <uint8_t>size)
    elif size < 0x10000:
        write16(w, 0xDA, <uint16_t>size)
    else:
        write32(w, 0xDB, <uint32_t>size)
    return write_raw(w, text, size)


cdef int write_bytes(Writer* w, const char* start, Py_ssize_t size) except -1:
    if size < 0x100:
        write8(w, 0xC4, <uint8_t>size)
    elif size < 0x10000:
        write16(w, 0xC5, <uint16_t>size)
    else:
        write32(w, 0xC6, <uint32_t>size)
    return write_raw(w, start, size)


cdef int write_memoryview(Writer* w, object value) except -1:
    cdef Py_buffer view
    cdef bytes whole
    try:
        PyObject_GetBuffer(value, &view, PyBUF_FULL_RO)
    except ValueError:
        raise Refused("a memoryview that was released") from None
    try:
        whole = b"" if view.len == 0 else contiguous(&view)
    finally:
        PyBuffer_Release(&view)
    return write_bytes(w, PyBytes_AS_STRING(whole), PyBytes_GET_SIZE(whole))


cdef bytes contiguous(Py_buffer* view):
    cdef bytearray copy = bytearray(view.len)
    PyBuffer_ToContiguous(PyByteArray_AS_STRING(copy), view, view.len, b"C")
    return bytes(copy)


cdef int write_int(Writer* w, object value) except -1:
    cdef int overflow = 0
    cdef int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow)
    cdef uint64_t large
    if overflow:
        large = 0
        if overflow > 0:
            try:
                large = PyLong_AsUnsignedLongLong(value)
            except OverflowError:
                pass
        if large == 0:
            raise Refused("an int outside of -2**63 .. 2**64 - 1; pass it as a str")
        return write64(w, 0xCF, large)
    if number >= 0:
        if number < 0x80:
            return write_byte(w, <uint8_t>number)
        if number < 0x100:
            return write8(w, 0xCC, <uint8_t>number)
        if number < 0x10000:
            return write16(w, 0xCD, <uint16_t>number)
        if number < 0x100000000:
            return write32(w, 0xCE, <uint32_t>number)
        return write64(w, 0xCF, <uint64_t>number)
    if number >= -0x20:
        return write_byte(w, <uint8_t>number)
    if number >= -0x80:
        return write8(w, 0xD0, <uint8_t>number)
    if number >= -0x8000:
        return write16(w, 0xD1, <uint16_t>number)
    if number >= -0x80000000LL:
        return write32(w, 0xD2, <uint32_t>number)
    return write64(w, 0xD3, <uint64_t>number)


cdef int write_float(Writer* w, object value) except -1:
    cdef double number = PyFloat_AS_DOUBLE(value)
    cdef uint64_t bits
    memcpy(&bits, &number, 8)
    return write64(w, 0xCB, bits)


cdef int write_datetime(Writer* w, object value) except -1:
    """An aware datetime, as msgpack's timestamp: the instant, without the zone."""
    cdef object tzinfo = datetime_tzinfo(value)
    cdef object offset
    cdef int year = date_year(value), month = date_month(value)
    cdef int64_t before = year - 1
    cdef int64_t days, seconds, microseconds
    days = 365 * before + before // 4 - before // 100 + before // 400 - DAYS_BEFORE_1970
    days += DAYS_BEFORE_MONTH[month - 1] + date_day(value) - 1
    if month > 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
        days += 1
    seconds = 86400 * days + 3600 * datetime_hour(value) + 60 * datetime_minute(value) + datetime_second(value)
    microseconds = datetime_microsecond(value)
    if tzinfo is not UTC:
        offset = None if tzinfo is None else utcoffset(value)
        if offset is None:
            raise Refused("a datetime without a timezone", annotate=True)
        seconds -= 86400 * <int64_t>timedelta_days(offset) + timedelta_seconds(offset)
        microseconds -= timedelta_microseconds(offset)
        if microseconds < 0:
            microseconds += 1000000
            seconds -= 1
        if not -62135596800 <= seconds < 253402300800:
            raise Refused("a datetime outside of the years 1 to 9999 in UTC")
    return write_timestamp(w, seconds, <uint32_t>(1000 * microseconds))


cdef int write_timestamp(Writer* w, int64_t seconds, uint32_t nanoseconds) except -1:
    cdef unsigned char* at
    reserve(w, 15)
    at = w.at + w.used
    if seconds >> 34:
        at[0], at[1], at[2] = 0xC7, 12, 0xFF
        put(at + 3, nanoseconds, 4)
        put(at + 7, <uint64_t>seconds, 8)
        w.used += 15
    elif nanoseconds or seconds >> 32:
        at[0], at[1] = 0xD7, 0xFF
        put(at + 2, (<uint64_t>nanoseconds << 34) | <uint64_t>seconds, 8)
        w.used += 10
    else:
        at[0], at[1] = 0xD6, 0xFF
        put(at + 2, <uint64_t>seconds, 4)
        w.used += 6
    return 0


cdef int write_list(Writer* w, list values, int depth) except -1:
    # A timezone written in Python can run in between and change the list: every step looks at its size again.
    cdef Py_ssize_t count = PyList_GET_SIZE(values)
    cdef Py_ssize_t i = 0
    enter(depth)
    write_array_head(w, <uint32_t>count)
    try:
        while i < count and i < PyList_GET_SIZE(values):
            write_value(w, values[i], depth - 1)
            i += 1
    except Refused as refused:
        refused.steps.append(f"[{i}]")
        raise
    if i != count or count != PyList_GET_SIZE(values):
        raise Refused("a list that changed while it was encoded")
    return 0


cdef int write_dict(Writer* w, dict values, int depth) except -1:
    cdef Py_ssize_t count = len(values)
    cdef Py_ssize_t position = 0
    cdef Py_ssize_t seen = 0
    cdef PyObject* key_at
    cdef PyObject* value_at
    cdef object key = None
    cdef object value
    enter(depth)
    write_map_head(w, <uint32_t>count)
    while PyDict_Next(values, &position, &key_at, &value_at):
        key, value = <object>key_at, <object>value_at   # owned from here on, whatever happens to the dict
        seen += 1
        write_key(w, key)
        try:
            write_value(w, value, depth - 1)
        except Refused as refused:
            refused.steps.append(step_to(key))
            raise
    if seen != count or count != len(values):
        raise Refused("a dict that changed while it was encoded")
    return 0


cdef int enter(int depth) except -1:
    if depth == 0:
        raise Refused(f"nested more than {MAX_DEPTH} levels deep, or contains itself")
    return 0


cdef str step_to(object key):
    if isinstance(key, str):
        name = str.__str__(key)
        if len(name) <= 40 and name.isidentifier():
            return "." + name
    text = repr(key)
    return f"[{text if len(text) <= 40 else text[:37] + '...'}]"


cdef int write_key(Writer* w, object key) except -1:
    if type(key) is str:
        return write_str(w, key)
    if key is None or isinstance(key, (str, int, float, bytes)):
        return write_value(w, key, 0)
    raise Refused(f"a dict with a {type(key).__name__} as key", annotate=True)


cdef int write_value(Writer* w, object value, int depth) except -1:
    if type(value) is str:
        return write_str(w, value)
    if type(value) is int:
        return write_int(w, value)
    if value is None:
        return write_byte(w, 0xC0)
    if value is True:
        return write_byte(w, 0xC3)
    if value is False:
        return write_byte(w, 0xC2)
    if type(value) is float:
        return write_float(w, value)
    if type(value) is dict:
        return write_dict(w, <dict>value, depth)
    if type(value) is list:
        return write_list(w, <list>value, depth)
    if type(value) is bytes:
        return write_bytes(w, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
    return write_other(w, value, depth)


cdef int write_other(Writer* w, object value, int depth) except -1:
    """Subclasses, as their base, and what is rarer."""
    if PyType_IsSubtype(type(value), Enum):
        raise Refused(f"a member of the Enum {type(value).__name__}", annotate=True)
    if isinstance(value, str):
        return write_str(w, value)
    if isinstance(value, int):
        return write_int(w, value)
    if isinstance(value, float):
        return write_float(w, value)
    if isinstance(value, dict):
        return write_dict(w, <dict>value, depth)
    if isinstance(value, list):
        return write_list(w, <list>value, depth)
    if isinstance(value, bytes):
        return write_bytes(w, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
    if isinstance(value, bytearray):
        return write_bytes(w, PyByteArray_AS_STRING(value), PyByteArray_GET_SIZE(value))
    if PyMemoryView_Check(value):
        return write_memoryview(w, value)
    if PyDateTime_Check(value):
        return write_datetime(w, value)
    raise Refused(f"a {type(value).__name__}, which has no plain form", annotate=True)
