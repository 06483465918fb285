"""The digest of a call: what makes two calls "the same" for a unique job.

docs/canonical.md describes what is hashed, for producers in other languages. It is a promise: whatever changes a digest
changes VERSION as well.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Contains
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.string cimport memcmp

from fastq_ext.canonical_buffer cimport (
    Buffer, Group, add_item, close_buffer, close_group, open_buffer, open_group, put_bytes,
)
from fastq_ext.canonical_form cimport AT_KEY, MAP, Step, enter, set_root, write_dict, write_value

cdef extern from "blake2b.h":
    void blake2b(unsigned char* out, size_t size, const unsigned char* data, size_t length) noexcept nogil

cdef extern from "Python.h":
    PyObject* PyDict_GetItemWithError(object mapping, object key) except? NULL

cdef enum:
    DIGEST_SIZE = 24            # 192 bits
    KEY_SIZE = 32               # the same in base64url

cdef enum:
    POSITIONAL
    POSITIONAL_OR_KEYWORD
    VAR_POSITIONAL
    KEYWORD
    VAR_KEYWORD

cdef dict KINDS = {
    "positional": POSITIONAL,
    "positional_or_keyword": POSITIONAL_OR_KEYWORD,
    "var_positional": VAR_POSITIONAL,
    "keyword": KEYWORD,
    "var_keyword": VAR_KEYWORD,
}
cdef const char* VERSION = b"fastq/1"   # goes before every form that is hashed
cdef const char* BASE64URL = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def canonical(value):
    """Returns the canonical form of one value.

    Raises TypeError for a value that has none, ValueError for a cycle, more than 64 containers inside one another, a
    lone surrogate or two dict keys of one form; each names the path, as in ``value.user.tags[3]: ...``.

    >>> canonical([1, "a"])
    b'l\\x02i\\x01\\x01s\\x01a'
    """
    cdef Buffer out
    cdef Step root
    open_buffer(&out)
    try:
        set_root(&root, "value")
        write_value(&out, value, &root)
        return PyBytes_FromStringAndSize(<char*> out.data, out.used)
    finally:
        close_buffer(&out)


def digest_named(dict arguments not None):
    """Returns the digest of a call made by keywords only, for a producer that does not have the function.

    It is the digest that ``Signature.digest`` gives, unless an argument equals its default: then leave it out here.
    Raises what `canonical` raises, with paths such as ``args.user.tags[3]``.

    >>> digest_named({"order_id": "o-1"})
    b'...'
    """
    cdef Buffer out
    cdef Step root
    require_names(arguments)
    open_buffer(&out)
    try:
        set_root(&root, "args")
        put_version(&out)
        write_dict(&out, arguments, &root)
        return digest_of(&out)
    finally:
        close_buffer(&out)


def digest_text(str text not None):
    """Returns the digest of a key that is too long to be used as it is. It never equals that of a call."""
    cdef Buffer out
    cdef Step root
    open_buffer(&out)
    try:
        set_root(&root, "key")
        put_version(&out)
        write_value(&out, text, &root)
        return digest_of(&out)
    finally:
        close_buffer(&out)


@cython.final
cdef class Signature:
    """The parameters of a task, for binding calls to them and hashing what was bound. Made once for each task.

    `parameters` are (name, kind, default) in order of declaration; the kind is "positional", "positional_or_keyword",
    "var_positional", "keyword" or "var_keyword", the default is `Signature.REQUIRED` if there is none.

    >>> signature = Signature([("a", "positional_or_keyword", Signature.REQUIRED), ("b", "keyword", 2)])
    >>> signature.digest((1,), {"b": 2}) == signature.digest((), {"a": 1})
    True
    """

    REQUIRED = type("REQUIRED", (), {"__repr__": lambda self: "Signature.REQUIRED", "__slots__": ()})()

    def __cinit__(self, parameters):
        cdef list held = []
        cdef list plain = []
        cdef Py_ssize_t i
        for name, kind, default in parameters:
            if kind not in KINDS:
                raise ValueError(f"parameter {name!r}: unknown kind {kind!r}")
            if kind == "var_keyword":
                self.extra = name
            else:
                plain.append((name, KINDS[kind], () if kind == "var_positional" else default))
        names = [name for name, _, _ in plain]
        if len(set(names)) != len(names):
            raise ValueError("two parameters have the same name")
        self.count = len(plain)
        self.parameters = <Parameter*> PyMem_Malloc(max(self.count, 1) * sizeof(Parameter))
        self.in_order = <Parameter**> PyMem_Malloc(max(self.count, 1) * sizeof(Parameter*))
        if self.parameters == NULL or self.in_order == NULL:
            raise MemoryError()
        for i, (name, kind, default) in enumerate(plain):
            held.append(set_parameter(&self.parameters[i], name, kind, default))
            if kind == VAR_POSITIONAL:
                self.rest = name
            elif kind in (POSITIONAL, POSITIONAL_OR_KEYWORD):
                self.parameters[i].position = self.positional
                self.positional += 1
        for i, (_, place) in enumerate(sorted((canonical(name), place) for place, name in enumerate(names))):
            self.in_order[i] = &self.parameters[<Py_ssize_t> place]
        self.held = tuple(held)
        self.by_keyword = frozenset(name for name, kind, _ in plain if kind in (POSITIONAL_OR_KEYWORD, KEYWORD))
        self.by_place = frozenset(names) - self.by_keyword

    def __init__(self, parameters):
        """Nothing is left to do; the parameters are read once, so that they cannot change under a digest."""

    def __dealloc__(self):
        PyMem_Free(self.parameters)
        PyMem_Free(self.in_order)

    def bind(self, tuple args not None, dict kwargs not None):
        """Returns the arguments by parameter, as ``inspect.Signature.bind(...).arguments`` does.

        Defaults are not filled in; ``*args`` is a tuple and ``**kwargs`` a dict under its own name, if not empty.
        Raises TypeError, in the words of `inspect`, for a call that the function would not take.
        """
        cdef Py_ssize_t i
        cdef Parameter* parameter
        cdef PyObject* found
        cdef dict bound = {}
        cdef Py_ssize_t extras = self.check(args, kwargs)
        for i in range(self.count):
            parameter = &self.parameters[i]
            if parameter.kind == VAR_POSITIONAL:
                if PyTuple_GET_SIZE(args) > self.positional:
                    bound[self.rest] = args[self.positional:]
                continue
            found = given(parameter, args, kwargs)
            if found != NULL:
                bound[<object> parameter.name] = <object> found
        if extras:
            bound[self.extra] = {name: value for name, value in kwargs.items() if name not in self.by_keyword}
        return bound

    def digest(self, tuple args not None, dict kwargs not None, tuple only=None):
        """Returns the digest of a call: 32 characters of base64url that begin a lock key after its ``#``.

        Two calls have the same one exactly if they give each parameter the same value; one whose value has the form of
        its default is left out, so that it makes no difference whether it was passed. `only` names the parameters that
        count (or extra keywords; the name of ``**kwargs`` stands for all of them).

        Raises TypeError for a call that the function would not take, otherwise what `canonical` raises, with paths such
        as ``args.user.tags[3]``.
        """
        return self.digest_call(args, kwargs, only)

    cdef object digest_call(self, tuple args, dict kwargs, tuple only):
        cdef Buffer out
        cdef Group group
        cdef Step root, step
        cdef Py_ssize_t i
        cdef Parameter* parameter
        cdef PyObject* found
        cdef object value
        cdef Py_ssize_t extras = self.check(args, kwargs)
        open_buffer(&out)
        try:
            set_root(&root, "args")
            enter(&step, &root, self, AT_KEY)
            put_version(&out)
            open_group(&out, &group, MAP)
            for i in range(self.count):
                parameter = self.in_order[i]
                if only is not None and <object> parameter.name not in only:
                    continue
                if parameter.kind == VAR_POSITIONAL:
                    self.write_argument(&out, &group, parameter, args[self.positional:], &step)
                    continue
                found = given(parameter, args, kwargs)
                if found != NULL:
                    value = <object> found   # held: hashing it may run code that empties kwargs
                    self.write_argument(&out, &group, parameter, value, &step)
            if extras:
                self.write_extras(&out, &group, kwargs, only, &step)
            close_group(&out, &group)
            return digest_of(&out)
        finally:
            close_buffer(&out)

    cdef Py_ssize_t check(self, tuple args, dict kwargs) except -1:
        """Raises TypeError unless the function would take the call; returns how many keywords go to **kwargs."""
        cdef Py_ssize_t i, extras = len(kwargs), places = PyTuple_GET_SIZE(args)
        cdef Parameter* parameter
        cdef bint placed
        if places > self.positional and self.rest is None:
            raise TypeError("too many positional arguments")
        for i in range(self.count):
            parameter = &self.parameters[i]
            placed = 0 <= parameter.position < places
            if extras and parameter.kind in (POSITIONAL_OR_KEYWORD, KEYWORD) and PyDict_Contains(kwargs, <object> parameter.name):
                if placed:
                    raise TypeError(f"multiple values for argument {<object> parameter.name!r}")
                extras -= 1
            elif not placed and parameter.default == NULL:
                raise TypeError(f"missing a required argument: {<object> parameter.name!r}")
        if extras:
            require_names(kwargs)
            if self.extra is None:
                self.refuse_keyword(kwargs)
        return extras

    cdef int refuse_keyword(self, dict kwargs) except -1:
        for name in kwargs:
            if name in self.by_place and name != self.rest:
                raise TypeError(f"{name!r} parameter is positional only, but was passed as a keyword")
            if name not in self.by_keyword:
                raise TypeError(f"got an unexpected keyword argument {name!r}")
        return 0

    cdef int write_argument(self, Buffer* out, Group* group, Parameter* parameter, object value, Step* at) except -1:
        cdef size_t start = out.used
        cdef size_t value_start
        if parameter.default_form == NULL and value is <object> parameter.default:
            return 0
        at.key = parameter.name
        put_bytes(out, parameter.name_form, parameter.name_size)
        value_start = out.used
        write_value(out, value, at)
        if (
            parameter.default_form != NULL
            and parameter.default_size == out.used - value_start
            and memcmp(parameter.default_form, out.data + value_start, parameter.default_size) == 0
        ):
            out.used = start
            return 0
        return add_item(out, group, start, parameter.name_size)

    cdef int write_extras(self, Buffer* out, Group* group, dict kwargs, tuple only, Step* at) except -1:
        """Writes what goes to **kwargs beside the parameters, as a call by name has it."""
        cdef size_t start, name_size
        cdef bint everything = only is None or self.extra in only
        for name, value in list(kwargs.items()):   # a copy: hashing a value may run code of the program
            if name in self.by_keyword or not (everything or (name in only and name not in self.by_place)):
                continue
            start = out.used
            at.key = <void*> name
            # A keyword can have the name of a parameter that it does not mean: def f(a, /, **extra). As bytes it stays
            # apart, since no name of a call is bytes.
            write_value(out, name.encode() if name in self.by_place else name, at)
            name_size = out.used - start
            write_value(out, value, at)
            add_item(out, group, start, name_size)
        return 0


cdef tuple set_parameter(Parameter* parameter, str name, int kind, object default):
    """Fills in a parameter and returns the objects that it points to."""
    cdef bytes name_form = canonical(name)
    cdef bytes default_form = None
    parameter.name = <void*> name
    parameter.name_form = PyBytes_AS_STRING(name_form)
    parameter.name_size = PyBytes_GET_SIZE(name_form)
    parameter.default = NULL
    parameter.default_form = NULL
    parameter.default_size = 0
    parameter.kind = kind
    parameter.position = -1
    if default is not Signature.REQUIRED:
        parameter.default = <void*> default
        try:
            default_form = canonical(default)
        except Exception:
            pass   # a sentinel: passed or not is then a matter of identity
        else:
            parameter.default_form = PyBytes_AS_STRING(default_form)
            parameter.default_size = PyBytes_GET_SIZE(default_form)
    return name, name_form, default, default_form


cdef inline PyObject* given(Parameter* parameter, tuple args, dict kwargs) except? NULL:
    """Returns what a checked call gives one parameter, borrowed; NULL if nothing."""
    if 0 <= parameter.position < PyTuple_GET_SIZE(args):
        return <PyObject*> PyTuple_GET_ITEM(args, parameter.position)
    if parameter.kind == POSITIONAL or not kwargs:
        return NULL
    return PyDict_GetItemWithError(kwargs, <object> parameter.name)


cdef int require_names(dict kwargs) except -1:
    for name in kwargs:
        if not isinstance(name, str):
            raise TypeError("keywords must be strings")
    return 0


cdef inline int put_version(Buffer* out) except -1:
    return put_bytes(out, VERSION, 7)


cdef object digest_of(Buffer* out):
    """Returns base64url of the BLAKE2b of all that was written: 24 bytes make 32 characters, without padding."""
    cdef unsigned char digest[DIGEST_SIZE]
    cdef unsigned int three
    cdef int i
    cdef object key = PyBytes_FromStringAndSize(NULL, KEY_SIZE)
    cdef char* to = PyBytes_AS_STRING(key)
    blake2b(digest, DIGEST_SIZE, out.data, out.used)
    for i in range(DIGEST_SIZE // 3):
        three = (<unsigned int> digest[3 * i] << 16) | (<unsigned int> digest[3 * i + 1] << 8) | digest[3 * i + 2]
        to[4 * i] = BASE64URL[three >> 18]
        to[4 * i + 1] = BASE64URL[(three >> 12) & 63]
        to[4 * i + 2] = BASE64URL[(three >> 6) & 63]
        to[4 * i + 3] = BASE64URL[three & 63]
    return key


cdef class DigestKey:
    """Makes lock keys out of calls: a prefix and the digest of all arguments, or of those in `only`.

    `error(problem)` gives what is raised for a TypeError or ValueError of the digest.

    >>> DigestKey(signature, b"send_email:#", None, PayloadError)(("o-1",), {})
    b'send_email:#...'
    """

    def __init__(self, Signature signature not None, bytes prefix not None, tuple only, error):
        self.signature, self.prefix, self.only, self.error = signature, prefix, only, error

    def __call__(self, tuple args not None, dict kwargs not None):
        return self.key(args, kwargs)

    cdef bytes key(self, tuple args, dict kwargs):
        try:
            return self.prefix + <bytes>self.signature.digest_call(args, kwargs, self.only)
        except (TypeError, ValueError) as problem:
            raise self.error(problem) from None
