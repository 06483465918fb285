"""Arguments come back as their parameters are annotated, and what does not fit is an error that names the place."""

import dataclasses
import datetime as dt
import decimal
import enum
import typing
import uuid
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict, Union

import msgspec
import pytest

from fastq.codec import Message, encode_plain, new_uid, read_signature
from fastq.errors import ConfigError, PayloadError

NOW = 1_700_000_000_000


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Point(NamedTuple):
    x: int
    y: float = 0.5


class Address(msgspec.Struct):
    city: str
    tags: set[str] = set()


@dataclasses.dataclass
class Order:
    id: uuid.UUID
    placed: dt.datetime
    to: Address
    parent: Optional["Order"] = None


class Options(TypedDict):
    width: int
    colour: Colour


UserId = typing.NewType("UserId", int)
AWARE = dt.datetime(2024, 2, 29, 12, 30, 1, 250_000, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30)))
ORDER = Order(uuid.UUID(int=7), AWARE, Address("Pune", {"a", "b"}), None)


def round_trip(function, *args, **kwargs):
    signature = read_signature("t", function)
    message = signature.template().encode(args, kwargs, new_uid(NOW), NOW)
    return signature.decoder.decode(Message(message).payload)


def taking(annotation):
    def function(value): ...

    function.__annotations__ = {"value": annotation}
    return function


ANNOTATED = [
    (str, "text"),
    (str, ""),
    (str, "\x00é\N{GRINNING FACE}"),
    (int, 2**63 - 1),
    (int, -(2**63)),
    (int, 2**64 - 1),
    (float, 1e308),
    (bool, True),
    (bytes, b"\x9c\xff"),
    (type(None), None),
    (list, [1, ["a", None]]),
    (dict, {"a": [], "b": {}}),
    (list[int], [1, 2]),
    (dict[str, list[float]], {"a": [0.1]}),
    (dict[int, str], {1: "a", -2: "b"}),
    (int | None, None),
    (str | list[str], ["a"]),
    (Union[int, str], "a"),  # noqa: UP007
    (Literal["a", 3], 3),
    (Annotated[int, msgspec.Meta(ge=1)], 5),
    (UserId, 12),
    (Any, {"a": [1, 2.5, None, True, b"x"]}),
    (object, "anything"),
    (dt.datetime, AWARE),
    (dt.datetime, dt.datetime(2024, 2, 29, 12, 30)),
    (dt.date, dt.date(2024, 2, 29)),
    (dt.time, dt.time(23, 59, 59)),
    (dt.timedelta, dt.timedelta(days=2, seconds=3)),
    (uuid.UUID, uuid.UUID(int=2**100)),
    (decimal.Decimal, decimal.Decimal("1.10")),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (Colour, Colour.RED),
    (Level, Level.HIGH),
    (Point, Point(1)),
    (Options, {"width": 3, "colour": Colour.RED}),
    (Address, Address("Pune", {"x"})),
    (Order, dataclasses.replace(ORDER, parent=ORDER)),
    (list[Order], [ORDER]),
    (dict[uuid.UUID, set[dt.date]], {uuid.UUID(int=1): {dt.date(2024, 1, 1)}}),
    (Optional[Order], None),  # noqa: UP045
    (dict[str, Order] | None, {"a": ORDER}),
]


@pytest.mark.parametrize(("annotation", "value"), ANNOTATED, ids=lambda value: repr(value)[:40])
def test_a_value_comes_back_as_annotated_given_by_place_or_by_name(annotation, value):
    by_place = round_trip(taking(annotation), value)
    by_name = round_trip(taking(annotation), value=value)

    assert by_place == ((value,), {})
    assert type(by_place[0][0]) is type(value)
    assert by_name == ((), {"value": value})
    assert type(by_name[1]["value"]) is type(value)


@pytest.mark.parametrize("value", ["a", 2**64 - 1, -(2**63), 0.1, True, None, b"\xff", [], {}, [[]], {"a": []}, AWARE])
def test_without_an_annotation_plain_data_comes_back_with_its_type(value):
    def bare(value): ...

    assert round_trip(bare, value) == ((value,), {})
    assert type(round_trip(bare, value)[0][0]) is type(value)


@pytest.mark.parametrize(
    "value",
    [(1,), {1}, uuid.UUID(int=1), decimal.Decimal(1), Colour.RED, Level.HIGH, dt.date(2024, 1, 1), ORDER, 2**64],
)
def test_without_an_annotation_anything_else_is_refused_by_the_name_of_the_parameter(value):
    def bare(first, second): ...

    with pytest.raises(TypeError, match=r"second\[0\]"):
        round_trip(bare, 1, [value])


def test_each_kind_of_parameter_comes_back_where_it_belongs():
    def every(a: uuid.UUID, /, b: dt.date, *rest: set[int], c: decimal.Decimal, d: str = "x", **extra: dt.time): ...

    day, half = dt.date(2024, 1, 1), decimal.Decimal("0.5")
    args = (uuid.UUID(int=1), day, {1}, {2, 3})

    assert round_trip(every, *args, c=half) == (args, {"c": half})
    assert round_trip(every, *args[:2], c=half, noon=dt.time(12), a=dt.time(1)) == (
        args[:2],
        {"c": half, "noon": dt.time(12), "a": dt.time(1)},
    )
    assert round_trip(every, args[0], b=day, c=half, d="y") == (args[:1], {"b": day, "c": half, "d": "y"})


def test_any_number_of_arguments_comes_back():
    def many(*values): ...

    for count in (0, 15, 16, 70_000):
        assert round_trip(many, *range(count)) == (tuple(range(count)), {})


def test_a_default_of_none_makes_a_parameter_optional():
    def maybe(when: dt.date = None): ...  # noqa: RUF013

    assert round_trip(maybe, None) == ((None,), {})
    assert round_trip(maybe, when=dt.date(2024, 1, 1)) == ((), {"when": dt.date(2024, 1, 1)})


def test_plain_types_that_cannot_be_told_apart_in_a_union_come_back_as_they_were_written():
    def either(value: str | bytes): ...

    assert round_trip(either, b"a") == ((b"a",), {})
    assert round_trip(either, "a") == ((("a"),), {})


def test_a_wrapped_function_is_read_through_its_wrapper():
    import functools

    def inner(value: uuid.UUID): ...

    @functools.wraps(inner)
    def outer(*args, **kwargs): ...

    assert round_trip(outer, uuid.UUID(int=1)) == ((uuid.UUID(int=1),), {})


def test_a_class_of_an_enclosing_function_is_found_if_it_is_used_there():
    class Local(msgspec.Struct):
        a: int

    def takes(value: "Local"):
        return Local

    assert round_trip(takes, Local(1)) == ((Local(1),), {})


def test_a_return_annotation_may_name_what_only_type_checkers_know():
    def takes(value: int) -> "Unknown": ...  # type: ignore[name-defined]  # noqa: F821

    assert round_trip(takes, 1) == ((1,), {})


def test_an_annotation_that_cannot_be_resolved_is_an_error_at_registration():
    def takes(value: "Unknown"): ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ConfigError, match="'Unknown' is not defined"):
        read_signature("t", takes)


@pytest.mark.parametrize(
    "annotation",
    [
        type("Plain", (), {}),
        list[type("Nested", (), {})],
        typing.Callable[[int], int],
        complex,
        dt.datetime | dt.date,
        set[int] | list[int],
        Order | Address,
        dict[str, complex] | None,
    ],
)
def test_an_annotation_that_cannot_be_decoded_is_an_error_at_registration(annotation):
    with pytest.raises(ConfigError, match="parameter 'value' cannot be decoded as annotated"):
        read_signature("t", taking(annotation))


# --- payloads that do not fit


def fits(first: int, second: list[dict[str, int]] = [], *, third: Order | None = None): ...  # noqa: B006


@pytest.mark.parametrize(
    ("args", "kwargs", "path", "says"),
    [
        (["x"], {}, "first", "Expected `int`, got `str`"),
        ([1.5], {}, "first", "Expected `int`, got `float`"),
        ([True], {}, "first", "Expected `int`, got `bool`"),
        ([1, [{}, {"a": "b"}]], {}, "second[1][...]", "Expected `int`, got `str`"),
        ([1], {"second": [{"a": None}]}, "second[0][...]", "Expected `int`, got `None`"),
        ([1, [{2: 3}]], {}, "second[0]", "Expected `str`, got `int`"),
        ([1], {"third": {"id": "x"}}, "third.id", "Invalid UUID"),
        ([1], {"third": {}}, "third", "missing required field `id`"),
        ([], {}, "", "missing a required argument: 'first'"),
        ([1, [], 3], {}, "", "too many positional arguments"),
        ([1], {"fourth": 4}, "fourth", "unexpected keyword argument 'fourth'"),
        ([1], {"first": 1}, "", "multiple values for argument 'first'"),
    ],
)
def test_a_payload_that_does_not_fit_is_an_error_that_names_the_place(args, kwargs, path, says):
    decoder = read_signature("shop.fits", fits).decoder

    with pytest.raises(PayloadError) as caught:
        decoder.decode(encode_plain([args, kwargs]))

    assert caught.value.path == path
    assert says in str(caught.value)
    assert str(caught.value).startswith("shop.fits: ")


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x92",
        b"\x92\x90",
        b"\x92\x91\x01",
        b"\x92\x91\xc1\x80",
        b"\x92\xdd\xff\xff\xff\xff\x80",
        b"\x92\xdc\x00",
        b"\x91\x90",
        b"\x93\x90\x80\x80",
        b"\x80",
        b"\xc0",
        b"\x92\x80\x90",
        b"\x92\x91\x01\x81\x01\x01",
        b"\x92\x91\x01\x81\xa1\xff\x01",
        b"\x92\x91\x01\x80trailing",
        b"\x92\x91" + b"\x91" * 5000,
    ],
)
def test_a_damaged_payload_is_an_error_and_never_a_crash(payload):
    def anything(value=None, **more): ...

    for function in (anything, fits):
        with pytest.raises(PayloadError, match="t: "):
            read_signature("t", function).decoder.decode(payload)


def test_a_payload_written_in_longer_forms_of_msgpack_is_read_too():
    decoder = read_signature("t", fits).decoder

    assert decoder.decode(b"\xdd\x00\x00\x00\x02\xdd\x00\x00\x00\x01\x01\xdf\x00\x00\x00\x00") == ((1,), {})


# --- calls that do not fit


def test_a_call_that_the_function_could_not_take_is_refused():
    signature = read_signature("t", fits)

    signature.check((1,), {})
    signature.check((), {"first": 1, "third": None})
    for args, kwargs in [((), {}), ((1, [], 3), {}), ((1,), {"fourth": 4}), ((1,), {"first": 1})]:
        with pytest.raises(PayloadError, match="t: "):
            signature.check(args, kwargs)


def test_a_keyword_only_parameter_without_a_default_is_asked_for():
    def keyword(a=1, *, b): ...

    signature = read_signature("t", keyword)

    signature.check((), {"b": 1})
    for args, kwargs in [((), {}), ((1,), {}), ((1, 2), {})]:
        with pytest.raises(PayloadError):
            signature.check(args, kwargs)
        with pytest.raises(PayloadError):
            signature.decoder.decode(encode_plain([args, kwargs]))


def test_a_bound_call_has_its_defaults():
    def every(a, /, b=2, *rest, c=3, **extra): ...

    signature = read_signature("t", every)

    assert signature.bind((1,), {}) == ((1, 2), {"c": 3})
    assert signature.bind((1, 5, 6), {"c": 7, "d": 8}) == ((1, 5, 6), {"c": 7, "d": 8})
    assert signature.bind((1,), {"b": 5}) == ((1, 5), {"c": 3})
