"""What an argument without an annotation may be, and that it comes back as that."""

import array
import collections
import datetime as dt
import decimal
import enum
import pathlib
import uuid
from dataclasses import dataclass
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq_ext.message import EncodeError, Message
from tests.support import message_twin as twin
from tests.support.message_calls import NOW, UID, encode, payload_of, template


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Real(float):
    pass


class Items(list):
    pass


class Moment(dt.datetime):
    pass


class Color(enum.IntEnum):
    RED = 1


class Size(enum.StrEnum):
    SMALL = "s"


class Mode(enum.Flag):
    ON = 1


@dataclass
class Point:
    x: int


def same(a, b) -> bool:
    """Equal, and of the same types all the way down: 1, 1.0 and True are three values; NaN is itself."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    return repr(a) == repr(b) if isinstance(a, float) else a == b


integers = st.integers(-(2**63), 2**64 - 1)
moments = st.datetimes(timezones=st.just(dt.UTC))
scalars = st.none() | st.booleans() | integers | st.floats() | st.text() | st.binary(max_size=300) | moments
keys = st.none() | st.booleans() | integers | st.floats(allow_nan=False) | st.text() | st.binary()
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(keys, inner, max_size=5))


@given(st.lists(values, max_size=5), st.dictionaries(st.text(), values, max_size=5))
def test_plain_values_come_back_as_they_were_and_are_written_as_the_twin_writes_them(args, kwargs):
    payload = Message(template().encode(tuple(args), kwargs, UID, NOW)).payload

    assert payload == twin.encode_payload(tuple(args), kwargs)
    assert same(msgspec.msgpack.decode(payload), [args, kwargs])


@pytest.mark.parametrize(
    "value",
    [[], {}, [[]], {"a": {}}, 2**53 + 1, -(2**53) - 1, 12345678901234567890, 1.0, -0.0, 1e300, True, None, "", b"\xff"],
    ids=repr,
)
def test_what_a_round_trip_through_lua_would_damage_comes_back_as_it_was(value):  # field case C52
    assert same(payload_of(value, key=value), ([value], {"key": value}))


@pytest.mark.parametrize(
    ("value", "back"),
    [
        (Text("t"), "t"),
        (Text("é"), "é"),
        (Number(7), 7),
        (Real(1.5), 1.5),
        (Items([1, Items()]), [1, []]),
        (collections.OrderedDict(a=1), {"a": 1}),
        (collections.defaultdict(list, a=[1]), {"a": [1]}),
        ({Text("k"): 1, Number(2): 2, Real(2.5): 3}, {"k": 1, 2: 2, 2.5: 3}),
        (Moment(2024, 2, 29, tzinfo=dt.UTC), dt.datetime(2024, 2, 29, tzinfo=dt.UTC)),
    ],
    ids=repr,
)
def test_a_subclass_comes_back_as_its_base(value, back):
    assert same(payload_of(value)[0], [back])


@pytest.mark.parametrize(
    ("value", "back"),
    [
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
        (memoryview(b""), b""),
        (memoryview(b"abcdef")[::2], b"ace"),
        (memoryview(b"abc")[::-1], b"cba"),
        (memoryview(array.array("H", [1, 2])), array.array("H", [1, 2]).tobytes()),
        (memoryview(b"abcdef").cast("B", (2, 3)), b"abcdef"),
    ],
    ids=lambda value: bytes(value).decode("latin-1"),
)
def test_a_buffer_comes_back_as_its_bytes(value, back):
    assert same(payload_of(value)[0], [back])


zones = st.timezones() | st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23)).map(dt.timezone)


@given(st.datetimes(dt.datetime(1, 1, 3), dt.datetime(9999, 12, 29), timezones=zones, allow_imaginary=False))
def test_an_aware_datetime_of_any_zone_comes_back_as_the_same_instant(moment):
    [back], _ = payload_of(moment)

    assert back == moment.astimezone(dt.UTC)
    assert back.tzinfo is dt.UTC


@pytest.mark.parametrize(
    "moment",
    [
        dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))),
        dt.datetime(9999, 12, 31, 23, 59, tzinfo=dt.timezone(dt.timedelta(hours=-1))),
    ],
    ids=str,
)
def test_a_datetime_that_utc_has_no_year_for_is_refused(moment):
    with pytest.raises(EncodeError, match="years 1 to 9999"):
        encode(moment)


@pytest.mark.parametrize("fold", [0, 1])
def test_the_hour_that_comes_twice_is_told_apart_by_its_fold(fold):
    moment = dt.datetime(2024, 10, 27, 2, 30, fold=fold, tzinfo=ZoneInfo("Europe/Berlin"))

    assert payload_of(moment)[0] == [moment.astimezone(dt.UTC)]


@pytest.mark.parametrize(
    "value",
    [
        (1,),
        {1},
        frozenset(),
        uuid.UUID(int=1),
        decimal.Decimal(1),
        1j,
        dt.datetime(2024, 1, 1),
        dt.date(2024, 1, 1),
        dt.time(1),
        dt.timedelta(1),
        Color.RED,
        Size.SMALL,
        Mode.ON,
        Point(1),
        pathlib.Path("a"),
        range(3),
        {"a": 1}.keys(),
        int,
        pytest.param(object(), id="object"),
        {(1,): 2},
        {Color.RED: 2},
        {dt.date(2024, 1, 1): 2},
    ],
    ids=repr,
)
def test_what_would_come_back_as_something_else_is_refused_and_the_parameter_named(value):
    assert not twin.is_plain(value)
    with pytest.raises(EncodeError, match="annotate the parameter 'order'") as caught:
        template(parameters=("order",)).encode(([value],), {}, UID, NOW)

    assert caught.value.path == "order[0]"
    assert not caught.value.too_large


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 2**1000, Number(-(2**200)), {2**64: 1}], ids=type)
def test_an_int_that_msgpack_has_no_place_for_is_refused(value):
    with pytest.raises(EncodeError, match=r"int outside of -2\*\*63"):
        encode(value)


@pytest.mark.parametrize("value", ["\ud800", "a\udfffb", Text("\udc80"), {"\ud800": 1}], ids=ascii)
def test_a_lone_surrogate_is_refused(value):
    with pytest.raises(EncodeError, match="lone surrogate"):
        encode(value)
    with pytest.raises(EncodeError, match="lone surrogate"):
        encode(**{"\ud800": 1})


def nested(levels: int, wrap) -> object:
    value: object = 1
    for _ in range(levels):
        value = wrap(value)
    return value


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"a": inner}], ids=["list", "dict"])
def test_a_value_is_at_most_64_levels_deep(wrap):
    assert payload_of(nested(64, wrap))[0] == [nested(64, wrap)]
    with pytest.raises(EncodeError, match="more than 64 levels deep"):
        encode(nested(65, wrap))
    with pytest.raises(EncodeError, match="more than 64 levels deep"):
        encode(key=nested(100_000, wrap))


def test_a_value_that_contains_itself_is_refused():
    ring: list[object] = []
    ring.append({"again": ring})

    with pytest.raises(EncodeError, match="contains itself"):
        encode(ring)


def test_a_small_value_that_would_be_written_without_end_stops_at_the_limit():
    heap: list[object] = []
    for _ in range(60):
        heap = [heap, heap]

    with pytest.raises(EncodeError, match="larger than 1048576 bytes") as caught:
        encode(heap)

    assert caught.value.too_large


class Meddling(dt.tzinfo):
    """A timezone that changes what is being encoded, in the middle of it."""

    def __init__(self, meddle):
        self.meddle = meddle

    def utcoffset(self, _):
        self.meddle()
        return dt.timedelta(0)


def meddled_list(change):
    values: list[object] = []
    values += [1, dt.datetime(2024, 1, 1, tzinfo=Meddling(lambda: change(values))), 2]
    return values


def meddled_dict(change):
    values: dict[object, object] = {}
    values.update({"a": 1, "b": dt.datetime(2024, 1, 1, tzinfo=Meddling(lambda: change(values))), "c": 2})
    return values


@pytest.mark.parametrize(
    "value",
    [
        meddled_list(list.clear),
        meddled_list(lambda values: values.append(3)),
        meddled_list(lambda values: values.pop()),
        meddled_dict(dict.clear),
        meddled_dict(lambda values: values.update({i: i for i in range(1000)})),
        meddled_dict(lambda values: values.pop("c")),
        meddled_dict(lambda values: (values.pop("a"), values.update(d=4))),
    ],
    ids=["clear", "append", "pop", "clear dict", "grow dict", "shrink dict", "swap"],
)
def test_a_container_that_changes_while_it_is_encoded_is_refused(value):
    with pytest.raises(EncodeError, match="changed while it was encoded"):
        encode(value)
