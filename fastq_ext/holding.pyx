"""What a worker holds of a queue: fetched entries, the jobs in them that wait for a slot, and the outcomes to be reported.

Nothing here waits, calls Redis or looks into a payload. A job that simply succeeds costs a few bits here, no object.
"""
from collections import deque
from contextlib import contextmanager

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcmp

from fastq_ext.layout cimport UID_SIZE
from fastq_ext.message cimport (
    Frame,
    message_flags,
    message_job_id_size,
    message_lock_key,
    message_lock_key_size,
    message_policy,
    message_task,
    message_task_size,
    message_uid,
)

cdef enum:
    MAX_ENTRIES = 1000          # of one report
    MAX_UNLOCKS = 400
    MAX_OUTCOMES = 200
    MAX_BYTES = 1 << 20
    SUSPECTS = 2                # the stream of that number


cdef class Line:
    """What a worker knows of one task on one queue."""

    def __init__(self, task, str name, call, decoder, *, bint asks, bint keeps, double timeout):
        self.task = task
        self.name = name.encode()
        self.call = call
        self.decode_any = decoder.decode
        self.positional = [decoder.positional(count) for count in range(16)]
        self.asks = asks
        self.keeps = keeps
        self.timeout = timeout

    cdef tuple decode(self, const unsigned char* payload, size_t size):
        """The arguments and keyword arguments of a job; no dict when there are no keywords."""
        # Most payloads are an array of two: a short array of arguments, and an empty map, which is the last byte.
        if size >= 3 and payload[0] == 0x92 and payload[1] & 0xF0 == 0x90 and payload[size - 1] == 0x80:
            decode = self.positional[payload[1] & 0x0F]
            if decode is not None:
                try:
                    return decode(PyBytes_FromStringAndSize(<const char*>payload + 1, size - 2)), None
                except Exception:
                    pass  # not what it seemed, or arguments that do not fit: the whole is looked at
        return self.decode_any(PyBytes_FromStringAndSize(<const char*>payload, size))

    cdef int took(self, double seconds) except -1:
        """Learn how long a job held its slot."""
        self.mean = seconds if self.mean == 0 else self.mean + 0.1 * (seconds - self.mean)
        return 0


@cython.freelist(256)
cdef class Entry:
    """One stream entry in a worker's hands."""

    def __cinit__(self, Holding holding, int stream, bytes id, bytes data):
        self.holding = holding
        self.stream = stream
        self.id = id
        self.frame = Frame(data)
        self.open = self.frame.count

    cdef uint64_t fence(self) except? 0:
        """The fence of the job at place 0, from the entry's id."""
        ms, _, sequence = self.id.partition(b"-")
        return ((<uint64_t>int(ms)) << 22) | ((<uint64_t>int(sequence) & 0xFFFF) << 6)

    cdef bytes progress(self):
        """The bitmap of settled places; those behind the sound jobs count as settled once the rest has ended."""
        cdef object settled = self.settled
        if not self.rest_ended:
            return settled.to_bytes((self.frame.count + 7) // 8, "little")
        cdef object one = 1
        return (settled | (one << 72) - (one << self.frame.count)).to_bytes(9, "little")

    def is_open(self, int place):
        """Whether the turn of the job at `place` has not ended."""
        return not (self.settled >> place) & 1


cdef class Holding:
    """All that a worker has in hand of one queue, under one consumer name.

    `on_touched()` is called when there is something to report after there was nothing; `on_asking()` when a job has to ask.
    """

    def __init__(self, keys, bytes worker, on_touched, on_asking):
        self.keys = keys
        self.worker = worker
        self.unique_prefix = keys.unique(b"")
        self.entries = {}
        self.lines = {}
        self.queue = deque()
        self.cleared = deque()
        self.asking = []
        self.touched = []
        self.counters = {}
        self.on_touched = on_touched
        self.on_asking = on_asking

    def add_line(self, Line line):
        """Make a task's jobs known."""
        self.lines[line.name] = line

    def add(self, int stream, bytes id, bytes data):
        """Take in a fetched entry; the jobs in it wait for a slot. Returns the Entry."""
        cdef Entry entry = Entry(self, stream, id, data)
        self.entries[id] = entry
        self.suspects += stream == SUSPECTS
        if entry.open:
            self.queue.append(entry)
            self.ready += entry.open
            self.handed_out += entry.open
        return entry

    def take(self, int stream, list entries):
        """Take in the entries of one read, (id, fields) each. Returns how many jobs they hold, and what has to be looked at: the
        Entry of each frame that is not sound to its end, and (id, fields) of each that holds no frame.

        One that is in hand already is passed over: its group was made anew, or this answer was overtaken by another.
        """
        cdef Entry entry
        cdef list odd = []
        cdef int jobs = 0
        for item in entries:
            if item[0] in self.entries:
                continue
            fields = item[1]
            if fields is None or (<list>fields)[0] != b"f":
                odd.append((item[0], fields))
                continue
            entry = self.add(stream, item[0], (<list>fields)[1])
            jobs += entry.frame.count
            if <Py_ssize_t>entry.frame.offset[entry.frame.count] != PyBytes_GET_SIZE(entry.frame.data) or not entry.frame.count:
                odd.append(entry)
        return jobs, odd

    def clear(self, Entry entry, int place, bytes changed=None):
        """A job that had to ask may start; `changed` is its message, if a later call gave it other arguments."""
        self.cleared.append((entry, place, changed))
        self.ready += 1

    def count(self, str name, long by=1):
        """Add to one of the queue's counters with the next report."""
        self.counters[name] = self.counters.get(name, 0) + by

    def end(self, Entry entry, int place, *outcomes):
        """End the turn of a job. `outcomes`: what there is to do beside acknowledging it (fastq/worker/report.py)."""
        if (entry.settled >> place) & 1:
            raise ValueError("this job's turn has ended already")
        if entry.outcomes is None:
            entry.outcomes = []
        entry.outcomes.extend(outcomes)
        self.touch(entry, place)

    def end_rest(self, Entry entry, tuple outcome):
        """Report an outcome for what is behind the sound jobs of an entry."""
        if entry.outcomes is None:
            entry.outcomes = []
        entry.outcomes.append(outcome)
        entry.rest_ended = True
        if not entry.touched:
            entry.touched = True
            self.touched.append(entry)
            self.on_touched()

    def hand_back(self, int most, int per_frame):
        """Give up to `most` of the jobs that wait here, those that would start last, back to the queue, in frames of
        `per_frame`. Returns how many."""
        cdef Entry entry
        cdef int place, n, first, given = 0
        while given < most and (self.queue or self.cleared):
            if self.queue:
                entry = self.queue[len(self.queue) - 1]
                first = entry.frame.count
                n = 0
                while first > entry.next and n < min(per_frame, most - given):
                    first -= 1
                    if not (entry.settled >> first) & 1:
                        n += 1
                if n:
                    self.give(entry, [place for place in range(first, entry.frame.count) if entry.is_open(place)], None)
                    given += n
                if first == entry.next:
                    self.queue.pop()
            else:
                entry, place, changed = self.cleared.pop()
                self.give(entry, [place], changed)
                given += 1
        self.ready -= given
        return given

    def hand_back_asking(self):
        """Give back the jobs that would have to ask before they start."""
        asking, self.asking = self.asking, []
        for entry, place in asking:
            self.give(entry, [place], None)

    cdef int give(self, Entry entry, list places, bytes changed) except -1:
        frame = changed or b"".join([entry.frame.message_bytes(place) for place in places])
        for place in places[1:]:
            self.touch(entry, place)
        self.end(entry, places[0], ("back", len(places), frame))
        return 0

    cdef Line line_of(self, Frame frame, int place):
        cdef Line line = self.last
        cdef size_t size = message_task_size(frame, place)
        cdef const unsigned char* name = message_task(frame, place)
        if (line is not None and <size_t>PyBytes_GET_SIZE(line.name) == size
                and memcmp(PyBytes_AS_STRING(line.name), name, size) == 0):
            return line
        line = self.lines.get(PyBytes_FromStringAndSize(<const char*>name, size))
        if line is not None:
            self.last = line
        return line

    cdef int touch(self, Entry entry, int place) except -1:
        entry.settled |= <uint64_t>1 << place
        entry.open -= 1
        entry.unreported += 1
        self.unsettled += 1
        if not entry.touched:
            entry.touched = True
            self.touched.append(entry)
            if len(self.touched) == 1:
                self.on_touched()
        return 0

    cdef int succeed(self, Entry entry, int place, Line line) except -1:
        """The turn of a job that returned, in the way that most end; `line.keeps` and ids go by `end`."""
        line.succeeded += 1
        # until "done" (0) and "success" (1) release the lock here; "start" and "ttl" have nothing to do.
        if message_lock_key_size(entry.frame, place) and message_policy(entry.frame, place) & 3 < 2:
            entry.unlock |= <uint64_t>1 << place
        return self.touch(entry, place)

    @property
    def touched_any(self):
        """Whether a turn has ended that was not reported."""
        return bool(self.touched)

    def has_report(self):
        """Whether there is anything to report, be it a count."""
        return bool(self.touched) or self.handed_out != 0 or bool(self.counters)

    def report(self):
        """What has ended since the last report, at most one call's worth; None if there is nothing."""
        cdef Entry entry
        cdef Line line
        cdef uint64_t bits
        cdef int place, taken = 0, jobs = 0, unlocks = 0, outcomes = 0
        cdef Py_ssize_t size = 0
        if not self.has_report():
            return None
        cdef list done = [[], [], []], finished = [], progress = [], uids = [], keys = [], other = []
        for entry in self.touched:
            if taken >= MAX_ENTRIES or unlocks >= MAX_UNLOCKS or outcomes >= MAX_OUTCOMES or size >= MAX_BYTES:
                break
            taken += 1
            jobs += entry.unreported
            entry.unreported = 0
            entry.touched = False
            if entry.open:
                progress.append(entry.id)
                progress.append(entry.progress())
            else:
                (<list>done[entry.stream]).append(entry.id)
                finished.append(entry.id)
            bits, entry.unlock = entry.unlock, 0
            place = 0
            while bits:
                if bits & 1:
                    uids.append(PyBytes_FromStringAndSize(<const char*>message_uid(entry.frame, place), UID_SIZE))
                    keys.append(self.unique_prefix + PyBytes_FromStringAndSize(
                        <const char*>message_lock_key(entry.frame, place), message_lock_key_size(entry.frame, place)))
                    unlocks += 1
                bits >>= 1
                place += 1
            if entry.outcomes is not None:
                outcomes += len(entry.outcomes)
                for outcome in entry.outcomes:
                    other.append(outcome)
                    size += sum([len(part) for part in outcome if type(part) is bytes])
                entry.outcomes = None
        del self.touched[:taken]
        counters, self.counters = self.counters, {}
        for line in self.lines.values():
            if line.succeeded:
                name = line.name.decode()
                counters["succeeded"] = counters.get("succeeded", 0) + line.succeeded
                counters["succeeded:" + name] = line.succeeded
                line.succeeded = 0
        handed_out, self.handed_out = self.handed_out, 0
        return handed_out, done, finished, progress, b"".join(uids), keys, counters, other, jobs

    def settled(self, list finished, int jobs):
        """The server has a report: forget the entries that it finished, and count its jobs as settled."""
        cdef Entry entry
        for id in finished:
            entry = self.entries.pop(id, None)
            self.suspects -= entry is not None and entry.stream == SUSPECTS
        self.unsettled -= jobs
        if self.ended is not None:
            self.ended.update(finished)

    def done(self, int stream, bytes id):
        """Acknowledge an entry in which there is nothing to run."""
        cdef Entry entry = Entry(self, stream, id, b"")
        self.entries[id] = entry
        self.suspects += stream == SUSPECTS
        entry.touched = True
        self.touched.append(entry)
        self.on_touched()

    def take_asking(self, int most):
        """Up to `most` of the jobs that have to ask, as (Entry, place)."""
        taken = self.asking[:most]
        del self.asking[:most]
        return taken

    @contextmanager
    def watch_ends(self):
        """The ids of the entries that end within the block, which an older answer of the server may still name."""
        ended, self.ended = self.ended, set()
        try:
            yield self.ended
        finally:
            self.ended = ended
