"""The canonical form of one value, written straight into a buffer; docs/canonical.md describes the bytes.

An error is raised where the trouble is found, with the whole path to it, and passes through untouched.
"""
import dataclasses
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from uuid import UUID

from msgspec import UNSET, Struct

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Check, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from cpython.datetime cimport (
    PyDate_Check, PyDateTime_Check, PyDelta_Check, PyTime_Check, datetime_hour, datetime_microsecond, datetime_minute,
    datetime_second, import_datetime, time_hour, time_microsecond, time_minute, time_second, timedelta_days,
    timedelta_microseconds, timedelta_seconds,
)
from cpython.dict cimport PyDict_Check, PyDict_CheckExact, PyDict_Next, PyDict_Size
from cpython.exc cimport PyErr_Clear, PyErr_ExceptionMatches
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_Check, PyFloat_CheckExact
from cpython.list cimport PyList_Check, PyList_CheckExact, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_Check, PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.set cimport PyAnySet_Check, PyFrozenSet_Check, PySet_GET_SIZE
from cpython.tuple cimport PyTuple_Check, PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_Check, PyUnicode_CheckExact
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from fastq_ext.canonical_buffer cimport (
    Buffer, Group, add_item, close_group, open_group, put_byte, put_bytes, put_header,
)

cdef extern from "Python.h":
    # Declared without its error, since a try statement around each text would cost more than the rest.
    const char* utf8_or_null "PyUnicode_AsUTF8AndSize"(object text, Py_ssize_t* size) noexcept

import_datetime()

cdef enum:
    MAX_DEPTH = 64
    UNIX_EPOCH = 719163           # 1970-01-01 as date.toordinal() counts
    SHOWN_KEY = 40                # characters of a dict key that an error shows

cdef enum:
    NONE = 0x6e             # n
    FALSE = 0x66            # f
    TRUE = 0x74             # t
    INT = 0x69              # i
    NEGATIVE_INT = 0x6a     # j
    FLOAT = 0x64            # d
    DECIMAL = 0x71          # q
    TEXT = 0x73             # s
    BYTES = 0x62            # b
    LIST = 0x6c             # l
    SET = 0x65              # e
    INSTANT = 0x61          # a
    WALL_TIME = 0x77        # w
    DATE = 0x79             # y
    CLOCK = 0x63            # c
    AWARE_CLOCK = 0x7a      # z
    DURATION = 0x70         # p
    UUID_TAG = 0x75         # u


# -- where we are -------------------------------------------------------------------------------------------------------

cdef void set_root(Step* root, str name) noexcept:
    root.outer = NULL
    root.depth = 0
    root.place = AT_ROOT
    root.container = NULL
    root.key = <void*> name


cdef int enter(Step* step, Step* outer, object container, int place) except -1:
    """Begins the step into `container`, which must not be inside itself or too deep."""
    cdef Step* around = outer
    step.outer = outer
    step.depth = outer.depth + 1
    step.place = place
    step.index = 0
    step.container = <void*> container
    step.key = NULL
    if step.depth > MAX_DEPTH:
        raise ValueError(f"{path_to(outer)}: more than {MAX_DEPTH} containers inside one another")
    while around != NULL:
        if around.container == step.container:
            raise ValueError(f"{path_to(outer)}: contains itself")
        around = around.outer
    return 0


cdef str path_to(Step* at):
    cdef list names = []
    while at != NULL:
        names.append(name_of(at))
        at = at.outer
    return "".join(reversed(names))


cdef str name_of(Step* step):
    cdef object key
    if step.place == AT_INDEX:
        return f"[{step.index}]"
    if step.place == AT_KEYS:
        return ".keys()"
    if step.place == AT_ELEMENT:
        return "{...}"
    if step.place == AT_VALUE:
        return ".value"
    key = <object> step.key
    if step.place == AT_ROOT:
        return key
    if type(key) is str and key.isidentifier():
        return f".{key[:SHOWN_KEY]}"
    if type(key) in (str, bytes):
        return f"[{key[:SHOWN_KEY]!r}]"
    if type(key) is int and -2**63 <= key < 2**63:
        return f"[{key}]"
    return f"[<{type(key).__name__}>]"   # anything else could run code, or fill the screen, when shown


cdef int refuse_changed(Step* at) except -1:
    raise RuntimeError(f"{path_to(at)}: changed while it was hashed")


# -- values -------------------------------------------------------------------------------------------------------------

cdef int write_value(Buffer* out, object value, Step* at) except -1:
    """Writes the form of `value`, which stands at `at`: first the exact types that nearly every payload is made of."""
    if PyUnicode_CheckExact(value):
        return write_text(out, value, at)
    if PyLong_CheckExact(value):
        return write_int(out, value)
    if value is None:
        return put_byte(out, NONE)
    if value is True:
        return put_byte(out, TRUE)
    if value is False:
        return put_byte(out, FALSE)
    if PyFloat_CheckExact(value):
        return write_float(out, PyFloat_AS_DOUBLE(value))
    if PyDict_CheckExact(value):
        return write_dict(out, value, at)
    if PyList_CheckExact(value):
        return write_list(out, value, at)
    if PyTuple_CheckExact(value):
        return write_tuple(out, value, at)
    return write_other(out, value, at)


cdef int write_other(Buffer* out, object value, Step* at) except -1:
    """Writes the rest. An Enum comes before the base types, as its member may be an int or a str too."""
    if isinstance(value, Enum):
        return write_enum(out, value, at)
    if PyUnicode_Check(value):
        return write_text(out, value, at)
    if PyLong_Check(value):
        return write_int(out, value)
    if PyFloat_Check(value):
        return write_float(out, PyFloat_AS_DOUBLE(value))
    if PyDict_Check(value):
        return write_dict(out, value, at)
    if PyList_Check(value):
        return write_list(out, value, at)
    if PyTuple_Check(value):
        return write_tuple(out, value, at)
    if PyAnySet_Check(value):
        return write_set(out, value, at)
    if PyBytes_Check(value):
        return write_bytes(out, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
    if PyByteArray_Check(value):
        return write_bytes(out, PyByteArray_AS_STRING(value), PyByteArray_GET_SIZE(value))
    if isinstance(value, memoryview):
        return write_memoryview(out, value, at)
    if PyDateTime_Check(value):
        return write_datetime(out, value, at)
    if PyDate_Check(value):
        return write_date(out, value)
    if PyTime_Check(value):
        return write_time(out, value, at)
    if PyDelta_Check(value):
        return write_duration(out, value)
    if isinstance(value, UUID):
        put_byte(out, UUID_TAG)
        return put_raw(out, int.to_bytes(value.int, 16, "big"))
    if isinstance(value, Decimal):
        return write_decimal(out, value)
    if isinstance(value, Struct):
        return write_struct(out, value, at)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return write_dataclass(out, value, at)
    raise TypeError(
        f"{path_to(at)}: a value of type {type(value).__qualname__!r} has no canonical form; "
        f"pass plain data, or make a unique key of other arguments"
    )


cdef inline int put_raw(Buffer* out, bytes raw) except -1:
    return put_bytes(out, PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))


cdef inline int write_bytes(Buffer* out, const char* data, size_t size) except -1:
    put_header(out, BYTES, size)
    return put_bytes(out, data, size)


cdef inline int write_text(Buffer* out, object text, Step* at) except -1:
    cdef Py_ssize_t size
    cdef const char* utf8 = utf8_or_null(text, &size)
    if utf8 == NULL:
        refuse_text(at)
    put_header(out, TEXT, size)
    return put_bytes(out, utf8, size)


cdef int refuse_text(Step* at) except -1:
    """Takes the place of the error that CPython has set, unless it is another one (no memory)."""
    if PyErr_ExceptionMatches(UnicodeEncodeError):
        PyErr_Clear()
        raise ValueError(f"{path_to(at)}: a lone surrogate in a str has no UTF-8 and so no canonical form")
    return -1


cdef inline int write_int64(Buffer* out, int64_t number) except -1:
    """Writes the sign as the tag and the magnitude in as few bytes as it needs, the highest first."""
    cdef uint64_t magnitude = <uint64_t> number
    cdef uint64_t rest
    cdef unsigned char digits[8]
    cdef size_t size = 0
    if number < 0:
        magnitude = 0 - magnitude
    rest = magnitude
    while rest:
        size += 1
        digits[8 - size] = <unsigned char> (rest & 0xff)
        rest >>= 8
    put_header(out, NEGATIVE_INT if number < 0 else INT, size)
    return put_bytes(out, digits + 8 - size, size)


cdef inline int write_int(Buffer* out, object number) except -1:
    cdef int overflow
    cdef int64_t small = PyLong_AsLongLongAndOverflow(number, &overflow)
    if overflow == 0:
        return write_int64(out, small)
    return write_big_int(out, number, overflow < 0)


cdef int write_big_int(Buffer* out, object number, bint negative) except -1:
    # Methods of int itself, so that a subclass cannot answer for its value.
    cdef object magnitude = int.__abs__(number)
    cdef object size = (int.bit_length(magnitude) + 7) // 8
    put_header(out, NEGATIVE_INT if negative else INT, size)
    return put_raw(out, int.to_bytes(magnitude, size, "big"))


cdef inline int write_float(Buffer* out, double number) except -1:
    """Writes the eight bytes of IEEE 754, the sign first, with one zero and one NaN."""
    cdef uint64_t bits
    cdef unsigned char raw[9]
    cdef int i
    if number == 0.0:
        bits = 0
    elif number != number:
        bits = 0x7ff8000000000000
    else:
        memcpy(&bits, &number, 8)
    raw[0] = FLOAT
    for i in range(8):
        raw[1 + i] = <unsigned char> ((bits >> (56 - 8 * i)) & 0xff)
    return put_bytes(out, raw, 9)


cdef int write_decimal(Buffer* out, object number) except -1:
    """Writes a Decimal as text: NaN, [-]Infinity or [-]digits E exponent without zeros at the end of the digits."""
    cdef bytes text
    cdef str digits, stripped
    sign, places, exponent = Decimal.as_tuple(number)
    minus = "-" if sign else ""
    if exponent == "F":
        text = f"{minus}Infinity".encode()
    elif exponent in ("n", "N"):
        text = b"NaN"
    else:
        digits = "".join(map(str, places)).lstrip("0")
        stripped = digits.rstrip("0")
        text = f"{minus}{stripped}E{exponent + len(digits) - len(stripped)}".encode() if stripped else b"0E0"
    put_header(out, DECIMAL, len(text))
    return put_raw(out, text)


cdef int write_memoryview(Buffer* out, object view, Step* at) except -1:
    cdef bytes raw
    try:
        raw = view.tobytes()
    except ValueError as error:   # released
        raise ValueError(f"{path_to(at)}: {error}") from None
    return write_bytes(out, PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))


cdef int write_enum(Buffer* out, object member, Step* at) except -1:
    cdef Step inside
    cdef object value = attribute(member, "_value_", at)
    enter(&inside, at, member, AT_VALUE)
    return write_value(out, value, &inside)


# -- time: all of it is an int after a tag ------------------------------------------------------------------------------

cdef int write_datetime(Buffer* out, object moment, Step* at) except -1:
    cdef object offset = offset_of(datetime.utcoffset, moment, at)
    cdef int64_t days = date.toordinal(moment) - UNIX_EPOCH
    cdef int64_t us = microseconds(
        datetime_hour(moment), datetime_minute(moment), datetime_second(moment), datetime_microsecond(moment)
    )
    put_byte(out, WALL_TIME if offset is None else INSTANT)
    return write_int64(out, days * microseconds(24, 0, 0, 0) + us - offset_microseconds(offset))


cdef int write_date(Buffer* out, object day) except -1:
    put_byte(out, DATE)
    return write_int64(out, date.toordinal(day) - UNIX_EPOCH)


cdef int write_time(Buffer* out, object clock, Step* at) except -1:
    cdef object offset = offset_of(time.utcoffset, clock, at)
    cdef int64_t us = microseconds(
        time_hour(clock), time_minute(clock), time_second(clock), time_microsecond(clock)
    )
    put_byte(out, CLOCK if offset is None else AWARE_CLOCK)
    return write_int64(out, us - offset_microseconds(offset))


cdef int write_duration(Buffer* out, object duration) except -1:
    # In Python's ints: the longest timedelta has more microseconds than 64 bits can count.
    cdef object seconds = <object> timedelta_days(duration) * 86_400 + timedelta_seconds(duration)
    put_byte(out, DURATION)
    return write_int(out, seconds * 1_000_000 + timedelta_microseconds(duration))


cdef inline int64_t microseconds(int64_t hours, int64_t minutes, int64_t seconds, int64_t us) noexcept:
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + us


cdef object offset_of(object utcoffset, object value, Step* at):
    """Returns the offset from UTC, None if there is none. The base class's method, which refuses a day or more."""
    try:
        return utcoffset(value)
    except Exception as error:
        error.add_note(f"while {path_to(at)} was hashed")
        raise


cdef int64_t offset_microseconds(object offset) noexcept:
    if offset is None:
        return 0
    return (
        microseconds(24, 0, 0, 0) * timedelta_days(offset)
        + microseconds(0, 0, timedelta_seconds(offset), timedelta_microseconds(offset))
    )


# -- containers ---------------------------------------------------------------------------------------------------------
#
# Hashing can run code of the program (a tzinfo, a property), and that code can change what is being hashed: items are
# held while they are written, and a container that has another size afterwards is refused. What a subclass overrides is
# never called: it counts as its base.

cdef int write_list(Buffer* out, object items, Step* at) except -1:
    cdef Step inside
    cdef Py_ssize_t i, size = PyList_GET_SIZE(items)
    cdef object item
    enter(&inside, at, items, AT_INDEX)
    put_header(out, LIST, size)
    for i in range(size):
        if PyList_GET_SIZE(items) != size:
            break
        item = <object> PyList_GET_ITEM(items, i)
        inside.index = i
        write_value(out, item, &inside)
    if PyList_GET_SIZE(items) != size:
        refuse_changed(at)
    return 0


cdef int write_tuple(Buffer* out, object items, Step* at) except -1:
    cdef Step inside
    cdef Py_ssize_t i, size = PyTuple_GET_SIZE(items)
    enter(&inside, at, items, AT_INDEX)
    put_header(out, LIST, size)
    for i in range(size):
        inside.index = i
        write_value(out, <object> PyTuple_GET_ITEM(items, i), &inside)
    return 0


cdef int write_dict(Buffer* out, object mapping, Step* at) except -1:
    cdef Step inside
    cdef Group group
    cdef PyObject* next_key
    cdef PyObject* next_value
    cdef object key, value
    cdef size_t start, key_size
    cdef Py_ssize_t place = 0, size = PyDict_Size(mapping), seen = 0
    enter(&inside, at, mapping, AT_KEY)
    open_group(out, &group, MAP)
    while PyDict_Next(mapping, &place, &next_key, &next_value):
        key, value = <object> next_key, <object> next_value
        if seen == size:
            break
        start = out.used
        inside.place = AT_KEYS
        write_value(out, key, &inside)
        key_size = out.used - start
        inside.place = AT_KEY
        inside.key = <void*> key
        write_value(out, value, &inside)
        add_item(out, &group, start, key_size)
        seen += 1
    if seen != size or PyDict_Size(mapping) != size:
        refuse_changed(at)
    return close_map(out, &group, size, at)


cdef int close_map(Buffer* out, Group* group, size_t size, Step* at) except -1:
    if close_group(out, group) != size:
        raise ValueError(f"{path_to(at)}: two keys of a dict have the same canonical form")
    return 0


cdef int write_set(Buffer* out, object elements, Step* at) except -1:
    cdef Step inside
    cdef Group group
    cdef size_t start
    cdef Py_ssize_t size = PySet_GET_SIZE(elements)
    enter(&inside, at, elements, AT_ELEMENT)
    open_group(out, &group, SET)
    for element in frozenset.__iter__(elements) if PyFrozenSet_Check(elements) else set.__iter__(elements):
        start = out.used
        write_value(out, element, &inside)
        add_item(out, &group, start, out.used - start)
        if PySet_GET_SIZE(elements) != size:
            refuse_changed(at)
    close_group(out, &group)   # elements of one form (an Enum member and its value) are one element
    return 0


cdef int write_struct(Buffer* out, object struct, Step* at) except -1:
    """Writes a Struct as the dict that msgspec makes of it, but with every field that is set."""
    cdef object config = struct.__struct_config__
    cdef list fields = list(zip(struct.__struct_fields__, struct.__struct_encode_fields__))
    if config.tag is None:
        return write_fields(out, struct, fields, at, None, None)
    return write_fields(out, struct, fields, at, config.tag_field, config.tag)


cdef int write_dataclass(Buffer* out, object instance, Step* at) except -1:
    cdef list fields = [(field.name, field.name) for field in dataclasses.fields(instance)]
    return write_fields(out, instance, fields, at, None, None)


cdef int write_fields(Buffer* out, object owner, list fields, Step* at, object tag_field, object tag) except -1:
    """Writes a map from each field's name in the message to its value, and from `tag_field` to `tag` if there is one."""
    cdef Step inside
    cdef Group group
    cdef size_t size = 0
    cdef object value
    enter(&inside, at, owner, AT_KEY)
    open_group(out, &group, MAP)
    if tag_field is not None:
        write_field(out, &group, tag_field, tag, &inside)
        size += 1
    for name, written_name in fields:
        value = attribute(owner, name, at)
        if value is not UNSET:
            write_field(out, &group, written_name, value, &inside)
            size += 1
    return close_map(out, &group, size, at)


cdef int write_field(Buffer* out, Group* group, object name, object value, Step* inside) except -1:
    cdef size_t key_size, start = out.used
    inside.key = <void*> name
    write_value(out, name, inside)
    key_size = out.used - start
    write_value(out, value, inside)
    return add_item(out, group, start, key_size)


cdef object attribute(object owner, str name, Step* at):
    try:
        return getattr(owner, name)
    except Exception as error:
        error.add_note(f"while {path_to(at)} was hashed")
        raise
