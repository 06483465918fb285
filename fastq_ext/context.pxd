# Whether anybody else can see a context: its copies share its variables, and hold them.
from cpython.object cimport PyObject


cdef extern from "Python.h":
    ctypedef int (*visitproc)(PyObject* thing, void* arg) noexcept
    ctypedef struct PyTypeObject:
        int (*tp_traverse)(PyObject* thing, visitproc visit, void* arg) noexcept
    PyTypeObject* Py_TYPE(object thing)


cdef extern from *:
    """
    /* Without the global lock, nobody can know how many others hold a thing. */
    #ifdef Py_GIL_DISABLED
    #define HELD_BY_JUST(thing, holders) 0
    #else
    #define HELD_BY_JUST(thing, holders) (Py_REFCNT(thing) == (holders))
    #endif
    """
    bint HELD_BY_JUST(PyObject* thing, int holders)


cdef struct Visited:
    PyObject* owner_type
    PyObject* thing
    int things


cdef inline int visit(PyObject* thing, void* arg) noexcept:
    cdef Visited* visited = <Visited*>arg
    if thing != visited.owner_type:     # heap types are visited by their instances
        visited.thing = thing
        visited.things += 1
    return 0


cdef inline PyObject* variables_of(context):
    """What a context that nobody is in refers to: its variables. NULL if there is not just one such thing."""
    cdef Visited visited
    visited.owner_type, visited.thing, visited.things = <PyObject*>Py_TYPE(context), NULL, 0
    Py_TYPE(context).tp_traverse(<PyObject*>context, visit, &visited)
    return visited.thing if visited.things == 1 else NULL
