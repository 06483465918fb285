cimport cython
from libc.stdint cimport uint16_t, uint32_t, uint64_t

from fastq_ext.layout cimport (
    AT_ATTEMPT,
    AT_CRASHES,
    AT_ENQUEUED,
    AT_FLAGS,
    AT_JOB_ID_SIZE,
    AT_LOCK_KEY_SIZE,
    AT_LOCK_TTL,
    AT_POLICY,
    AT_TASK_SIZE,
    AT_UID,
    AT_VERSION,
    FIXED_SIZE,
    MAX_MESSAGES,
    load16,
    load64,
)


# One message, inside of the bytes it came in.
@cython.final
cdef class Message:
    cdef bytes data                     # keeps `at` alive
    cdef const unsigned char* at
    cdef uint32_t size                  # with its length field
    cdef uint32_t body                  # where the payload begins, from `at`

    cdef bytes name(self, int which)
    cdef bytes field(self, int flag)
    cdef object number(self, int flag)


# One stream entry as fetched: where its sound messages lie. Message i is data[offset[i]:offset[i + 1]].
@cython.final
cdef class Frame:
    cdef readonly bytes data
    cdef const unsigned char* at
    cdef uint32_t[MAX_MESSAGES + 1] offset
    cdef uint32_t[MAX_MESSAGES] body    # where the payload of message i begins, from `at`
    cdef readonly int count

    cdef Py_ssize_t place(self, Py_ssize_t i) except -1


# The header of message i, without an object made. Valid for 0 <= i < frame.count; pointers live as long as the frame.
# A message of another version than 1 has no names and no optional fields, and all behind its fixed part is payload.

cdef inline const unsigned char* message_at(Frame frame, int i) noexcept:
    return frame.at + frame.offset[i]

cdef inline uint32_t message_size(Frame frame, int i) noexcept:
    return frame.offset[i + 1] - frame.offset[i]

cdef inline int message_version(Frame frame, int i) noexcept:
    return message_at(frame, i)[AT_VERSION]

cdef inline int message_flags(Frame frame, int i) noexcept:
    return message_at(frame, i)[AT_FLAGS]

cdef inline int message_crashes(Frame frame, int i) noexcept:
    return message_at(frame, i)[AT_CRASHES]

cdef inline int message_policy(Frame frame, int i) noexcept:
    return message_at(frame, i)[AT_POLICY]

cdef inline int message_attempt(Frame frame, int i) noexcept:
    return load16(message_at(frame, i) + AT_ATTEMPT)

cdef inline const unsigned char* message_uid(Frame frame, int i) noexcept:
    return message_at(frame, i) + AT_UID

cdef inline uint64_t message_enqueued_ms(Frame frame, int i) noexcept:
    return load64(message_at(frame, i) + AT_ENQUEUED)

cdef inline uint64_t message_lock_ttl_ms(Frame frame, int i) noexcept:
    return load64(message_at(frame, i) + AT_LOCK_TTL)

cdef inline bint has_names(Frame frame, int i) noexcept:
    return message_version(frame, i) == 1

cdef inline const unsigned char* message_task(Frame frame, int i) noexcept:
    return message_at(frame, i) + FIXED_SIZE

cdef inline uint32_t message_task_size(Frame frame, int i) noexcept:
    return load16(message_at(frame, i) + AT_TASK_SIZE) if has_names(frame, i) else 0

cdef inline const unsigned char* message_lock_key(Frame frame, int i) noexcept:
    return message_task(frame, i) + message_task_size(frame, i)

cdef inline uint32_t message_lock_key_size(Frame frame, int i) noexcept:
    return load16(message_at(frame, i) + AT_LOCK_KEY_SIZE) if has_names(frame, i) else 0

cdef inline const unsigned char* message_job_id(Frame frame, int i) noexcept:
    return message_lock_key(frame, i) + message_lock_key_size(frame, i)

cdef inline uint32_t message_job_id_size(Frame frame, int i) noexcept:
    return load16(message_at(frame, i) + AT_JOB_ID_SIZE) if has_names(frame, i) else 0

cdef inline const unsigned char* message_payload(Frame frame, int i) noexcept:
    return frame.at + frame.body[i]

cdef inline uint32_t message_payload_size(Frame frame, int i) noexcept:
    return frame.offset[i + 1] - frame.body[i]
