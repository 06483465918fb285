"""Bytes that grow, and groups of items that end up in order: the ground under canonical.pyx, inlined into it.

A Buffer lives on the C stack of the outermost call. Most calls fit its inline arrays, so that no memory is asked for.
It points into itself: pass it by pointer, never copy it.
"""
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdlib cimport qsort
from libc.string cimport memcmp, memcpy, memmove

cdef enum:
    INLINE_BYTES = 1024
    INLINE_ITEMS = 32
    VARINT_ROOM = 10            # bytes of the longest varint


cdef struct Item:
    size_t start                # offset of the item's bytes in the buffer
    size_t key_size             # how many of them are its key
    size_t size                 # key and value together
    const unsigned char* key    # where they are; set for sorting only, since the buffer moves when it grows


cdef struct Buffer:
    unsigned char* data
    size_t used
    size_t room
    Item* items                 # of all groups that are open, the innermost last
    size_t item_count
    size_t item_room
    unsigned char inline_data[INLINE_BYTES]
    Item inline_items[INLINE_ITEMS]


cdef struct Group:
    size_t begin                # offset of the count that goes before the items
    size_t first                # index of its first item
    bint in_order               # whether each key so far was greater than the one before


cdef inline void open_buffer(Buffer* out) noexcept:
    out.data = out.inline_data
    out.used = 0
    out.room = INLINE_BYTES
    out.items = out.inline_items
    out.item_count = 0
    out.item_room = INLINE_ITEMS


cdef inline void close_buffer(Buffer* out) noexcept:
    if out.data != out.inline_data:
        PyMem_Free(out.data)
    if out.items != out.inline_items:
        PyMem_Free(out.items)


cdef inline void* grown(void* old, void* inline_array, size_t old_size, size_t new_size) except NULL:
    """Returns `old` with more room: moved off the stack the first time, reallocated later."""
    cdef void* new
    if old == inline_array:
        new = PyMem_Malloc(new_size)
        if new != NULL:
            memcpy(new, old, old_size)
    else:
        new = PyMem_Realloc(old, new_size)
    if new == NULL:
        raise MemoryError()
    return new


cdef inline int grow(Buffer* out, size_t more) except -1:
    cdef size_t room = 2 * (out.used + more)
    out.data = <unsigned char*> grown(out.data, out.inline_data, out.used, room)
    out.room = room
    return 0


cdef inline int reserve(Buffer* out, size_t more) except -1:
    if out.room - out.used < more:
        grow(out, more)
    return 0


cdef inline int put_byte(Buffer* out, unsigned char byte) except -1:
    reserve(out, 1)
    out.data[out.used] = byte
    out.used += 1
    return 0


cdef inline int put_bytes(Buffer* out, const void* source, size_t size) except -1:
    reserve(out, size)
    memcpy(out.data + out.used, source, size)
    out.used += size
    return 0


cdef inline size_t write_varint(unsigned char* to, size_t number) noexcept:
    """Writes unsigned LEB128, seven bits a byte from the lowest; returns how many bytes it took."""
    cdef size_t size = 0
    while number >= 0x80:
        to[size] = <unsigned char> ((number & 0x7f) | 0x80)
        number >>= 7
        size += 1
    to[size] = <unsigned char> number
    return size + 1


cdef inline int put_header(Buffer* out, unsigned char tag, size_t number) except -1:
    """Writes a tag and the length or count that goes with it."""
    reserve(out, 1 + VARINT_ROOM)
    out.data[out.used] = tag
    out.used += 1
    out.used += write_varint(out.data + out.used, number)
    return 0


cdef inline int compare_keys(
    const unsigned char* a, size_t a_size, const unsigned char* b, size_t b_size
) noexcept nogil:
    # No form is the beginning of another: keys that are equal as far as the shorter one goes are the same.
    cdef size_t i, size = a_size if a_size < b_size else b_size
    for i in range(size if size < 4 else 4):   # most differ here already, in their length or first letters
        if a[i] != b[i]:
            return <int> a[i] - <int> b[i]
    return memcmp(a, b, size)


cdef inline int compare_items(const void* a, const void* b) noexcept nogil:
    cdef const Item* x = <const Item*> a
    cdef const Item* y = <const Item*> b
    return compare_keys(x.key, x.key_size, y.key, y.key_size)


cdef inline int open_group(Buffer* out, Group* group, unsigned char tag) except -1:
    """Writes a tag and keeps one byte for the count, which is enough nearly always."""
    put_header(out, tag, 0)
    group.begin = out.used - 1
    group.first = out.item_count
    group.in_order = True
    return 0


cdef inline int add_item(Buffer* out, Group* group, size_t start, size_t key_size) except -1:
    """Notes that the bytes from `start` to the end of the buffer are one item."""
    cdef Item* item
    cdef Item* previous
    if out.item_count == out.item_room:
        out.items = <Item*> grown(
            out.items, out.inline_items, out.item_room * sizeof(Item), 2 * out.item_room * sizeof(Item)
        )
        out.item_room *= 2
    item = &out.items[out.item_count]
    item.start = start
    item.key_size = key_size
    item.size = out.used - start
    if group.in_order and out.item_count > group.first:
        previous = item - 1
        group.in_order = compare_keys(
            out.data + previous.start, previous.key_size, out.data + start, key_size
        ) < 0
    out.item_count += 1
    return 0


cdef inline size_t close_group(Buffer* out, Group* group) except? 0:
    """Puts the count and the items in order, one for each key. Returns the number of items left."""
    cdef size_t count = out.item_count - group.first
    out.item_count = group.first
    if group.in_order and count < 0x80:
        out.data[group.begin] = <unsigned char> count
        return count
    return rewrite_group(out, group, count)


cdef inline size_t rewrite_group(Buffer* out, Group* group, size_t count) except? 0:
    """Writes the sorted group behind itself, then moves it over the unsorted one."""
    cdef Item* items = out.items + group.first
    cdef unsigned char* sorted_bytes
    cdef unsigned char* at
    cdef size_t i, distinct = 0
    reserve(out, out.used - group.begin + VARINT_ROOM)
    for i in range(count):
        items[i].key = out.data + items[i].start
    qsort(items, count, sizeof(Item), compare_items)
    for i in range(count):
        if distinct and compare_items(&items[distinct - 1], &items[i]) == 0:
            continue
        items[distinct] = items[i]
        distinct += 1
    sorted_bytes = at = out.data + out.used
    at += write_varint(at, distinct)
    for i in range(distinct):
        memcpy(at, items[i].key, items[i].size)
        at += items[i].size
    memmove(out.data + group.begin, sorted_bytes, at - sorted_bytes)
    out.used = group.begin + (at - sorted_bytes)
    return distinct
