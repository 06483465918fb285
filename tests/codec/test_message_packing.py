"""Packer: many calls into few frames, nothing lost on the way."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq_ext.message import EncodeError, Frame, Packer
from tests.support.message_calls import NOW, encode, template

LARGE = 1 << 30
PLAIN = template(parameters=("a", "b"))


def read_back(frames):
    """The messages of all frames in order; each frame whole and its count right."""
    messages = []
    for data, count in frames:
        frame = Frame(data)
        assert (len(frame), frame.rest) == (count, b"")
        messages += [frame[i] for i in range(count)]
    return messages


def calls_of(messages):
    return [msgspec.msgpack.decode(message.payload) for message in messages]


def pack(items, *, packer=None, jobs=LARGE, size=LARGE, **options):
    return (packer or Packer()).pack(PLAIN, iter(items), NOW, jobs, size, **options)


items = st.lists(
    st.tuples(st.integers(0, 99), st.text(max_size=90)) | st.fixed_dictionaries({"a": st.integers(0, 99)}), max_size=200
)


@given(items, st.integers(1, 64), st.integers(1, 2000), st.integers(1, 80))
def test_every_item_comes_out_once_in_order_in_frames_within_their_bounds(items, max_jobs, max_bytes, jobs):
    packer, source, uids = Packer(max_jobs, max_bytes), iter(items), bytearray()
    frames, counts = [], []

    while True:
        result = packer.pack(PLAIN, source, NOW, jobs, LARGE, uids=uids)
        frames += result.frames
        counts.append(result.count)
        assert result.count == sum(count for _, count in result.frames) <= jobs
        if result.ended:
            break

    messages = read_back(frames)
    assert calls_of(messages) == [[list(i), {}] if type(i) is tuple else [[], i] for i in items]
    assert all(count <= max_jobs and (len(data) <= max_bytes or count == 1) for data, count in frames)
    assert b"".join(message.uid for message in messages) == bytes(uids)
    assert sorted(message.uid for message in messages) == [message.uid for message in messages]
    assert sum(counts) == len(items)


def test_a_message_is_packed_as_the_template_encodes_it():
    made = template(policy=3, tracked=True, retention_ms=5, expires_in_ms=7, extras=b"\x80")

    result = Packer().pack(made, iter([(1, "a")]), NOW, 10, LARGE)

    [message] = read_back(result.frames)
    assert message.raw == made.encode((1, "a"), {}, message.uid, NOW)


def test_frames_are_filled_before_the_next_is_begun():
    result = pack((i,) for i in range(150))

    assert [count for _, count in result.frames] == [64, 64, 22]
    assert result.ended


def test_a_message_larger_than_a_frame_has_its_own():
    result = pack([("a",), ("x" * 70_000,), ("b",), ("c",)])

    assert [count for _, count in result.frames] == [1, 1, 2]


def test_a_chunk_ends_at_the_size_and_the_iterator_goes_on_after_it():
    source = iter([("x" * 400,)] * 10)

    first = Packer().pack(PLAIN, source, NOW, LARGE, 1000)
    second = Packer().pack(PLAIN, source, NOW, LARGE, LARGE)

    assert (first.count, first.ended, first.error, first.has_foreign) == (3, False, None, False)
    assert (second.count, second.ended) == (7, True)


@pytest.mark.parametrize(("jobs", "size"), [(0, 10), (-1, 10), (10, 0), (10, -1)])
def test_nothing_is_taken_when_nothing_may_be_packed(jobs, size):
    source = iter([(1,)])

    result = Packer().pack(PLAIN, source, NOW, jobs, size)

    assert (result.count, result.frames, result.ended) == (0, [], False)
    assert next(source) == (1,)


class Pair(tuple):
    __slots__ = ()


class Call(dict):
    pass


@pytest.mark.parametrize("foreign", [None, 5, "ab", [1], Pair((1, 2)), Call(a=1), {1: 2}, {"a": 1, None: 2}], ids=repr)
def test_an_item_of_another_kind_is_handed_back_and_what_stands_before_it_is_kept(foreign):
    source = iter([(1,), foreign, (2,)])

    result = Packer().pack(PLAIN, source, NOW, LARGE, LARGE)

    assert result.has_foreign
    assert result.foreign is foreign
    assert calls_of(read_back(result.frames)) == [[[1], {}]]
    assert (result.count, result.ended, result.error) == (1, False, None)
    assert next(source) == (2,)


def test_an_item_that_cannot_be_encoded_is_an_error_and_what_stands_before_it_is_kept():
    packer, uids = Packer(), bytearray()

    result = pack([(1,), {"a": 2}, (3, [{4}])], packer=packer, uids=uids)

    assert isinstance(result.error, EncodeError)
    assert result.error.path == "b[0]"
    assert calls_of(read_back(result.frames)) == [[[1], {}], [[], {"a": 2}]]
    assert (result.count, len(uids)) == (2, 32)
    assert pack([(5,)], packer=packer).count == 1


def test_an_item_that_is_too_large_is_an_error():
    result = Packer().pack(template(max_payload=1000), iter([(1,), ("x" * 1000,)]), NOW, LARGE, LARGE)

    assert result.error.too_large
    assert result.count == 1


@pytest.mark.parametrize("error", [ValueError("no more"), KeyboardInterrupt()], ids=repr)
def test_what_the_iterator_raises_is_handed_back_with_what_stands_before_it(error):
    def source():
        yield (1,)
        raise error

    result = pack(source())

    assert result.error is error
    assert (result.count, result.ended) == (1, False)


def test_each_frame_of_locked_jobs_has_its_lock_values_and_keys():
    uids = bytearray()
    seen = []

    def key_of(args, kwargs):
        seen.append((args, kwargs))
        return b"task:%d" % (args[0] if args else kwargs["a"])

    made = template(lock_ttl_ms=5000)
    calls = [(i,) for i in range(99)] + [{"a": 99}]
    result = Packer().pack(made, iter(calls), NOW, 100, LARGE, key_of, uids, b"fastq:{q}:unique:")

    messages = read_back(result.frames)
    assert seen == [((i,), {}) for i in range(99)] + [((), {"a": 99})]
    assert [message.lock_key for message in messages] == [b"task:%d" % i for i in range(100)]
    assert {message.lock_ttl_ms for message in messages} == {5000}
    assert [len(keys) for _, keys in result.locks] == [count for _, count in result.frames] == [64, 36]
    assert [key for _, keys in result.locks for key in keys] == [b"fastq:{q}:unique:task:%d" % i for i in range(100)]
    assert b"".join(values for values, _ in result.locks) == b"".join(message.uid + b"W" for message in messages)
    assert bytes(uids) == b"".join(message.uid for message in messages)


def test_locked_frames_cut_by_size_keep_their_own_values_and_keys():
    source = iter([("x" * i,) for i in range(60)])

    result = Packer(64, 300).pack(PLAIN, source, NOW, 60, LARGE, lambda args, kwargs: b"k" + args[0].encode())

    for (data, count), (values, keys) in zip(result.frames, result.locks, strict=True):
        frame = Frame(data)
        assert keys == [frame[i].lock_key for i in range(count)]
        assert values == b"".join(frame[i].uid + b"W" for i in range(count))


@pytest.mark.parametrize("key", [None, b"", "text"], ids=repr)
def test_a_key_that_is_no_key_is_an_error_of_the_item(key):
    keys = iter([b"k", key])

    result = pack([(1,), (2,)], key_of=lambda args, kwargs: next(keys))

    assert isinstance(result.error, TypeError | ValueError)
    assert result.count == 1
    assert result.locks[0][1] == [b"k"]


def test_key_of_cannot_change_the_call():
    def key_of(args, kwargs):
        kwargs["b"] = 2
        return b"k"

    result = pack([{"a": 1}, (3,)], key_of=key_of)

    assert calls_of(read_back(result.frames)) == [[[], {"a": 1}], [[3], {}]]


def test_added_messages_are_taken_in_frames():
    packer = Packer()
    for i in range(70):
        packer.add(encode(i))

    frames = packer.take()

    assert [count for _, count in frames] == [64, 6]
    assert calls_of(read_back(frames)) == [[[i], {}] for i in range(70)]
    assert packer.take() == []


def test_added_messages_lead_the_frames_of_the_next_pack():
    packer = Packer()
    packer.add(encode("added"))

    result = pack([("packed",)], packer=packer)

    assert [count for _, count in result.frames] == [2]
    assert calls_of(read_back(result.frames)) == [[["added"], {}], [["packed"], {}]]
    assert result.count == 1


def test_added_messages_are_taken_before_locked_jobs_are_packed():
    packer = Packer()
    packer.add(encode())

    with pytest.raises(ValueError, match=r"take\(\) first"):
        pack([(1,)], packer=packer, key_of=lambda args, kwargs: b"k")

    assert [count for _, count in packer.take()] == [1]


@pytest.mark.parametrize("message", [b"", b"x" * 60, encode()[:-1], encode() + b"x"], ids=len)
def test_only_a_message_can_be_added(message):
    packer = Packer()

    with pytest.raises(ValueError, match="not a message"):
        packer.add(message)

    assert packer.take() == []


def test_a_packer_at_work_refuses_a_second_call():
    packer = Packer()
    refused = []

    def source():
        yield (1,)
        for call in (lambda: pack([(2,)], packer=packer), packer.take, lambda: packer.add(encode())):
            try:
                call()
            except RuntimeError as error:
                refused.append(str(error))
        yield (3,)

    result = pack(source(), packer=packer)

    assert refused == ["this packer is at work"] * 3
    assert calls_of(read_back(result.frames)) == [[[1], {}], [[3], {}]]


@pytest.mark.parametrize("max_jobs", [0, -1, 65])
def test_a_frame_has_1_to_64_messages(max_jobs):
    with pytest.raises(ValueError, match="1 to 64"):
        Packer(max_jobs)


def test_uids_that_cannot_grow_raise_and_leave_the_packer_usable():
    packer, uids = Packer(), bytearray()

    with memoryview(uids), pytest.raises(BufferError):
        pack([(1,)], packer=packer, uids=uids)

    assert pack([(2,)], packer=packer, uids=uids).count == 1
    assert len(uids) == 16


def test_uids_need_less_than_20_bytes_a_job():
    uids = bytearray()
    packer = Packer()
    source = itertools.repeat((1,), 100_000)

    while not packer.pack(PLAIN, source, NOW, 1000, LARGE, uids=uids).ended:
        pass

    assert len(uids) == 1_600_000
    assert uids.__sizeof__() < 20 * 100_000
