"""What counts as the same value, rule by rule, and how a value without a form is refused."""

import array
import dataclasses
import os
import subprocess
import sys
from collections import OrderedDict, defaultdict, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest

from fastq_ext.canonical import canonical, digest_named
from tests.support import canonical_twin as twin


class Level(IntEnum):
    LOW = 1


class Colour(StrEnum):
    RED = "red"


class Rights(Flag):
    READ = 1
    WRITE = 2


class Bits(IntFlag):
    ALL = 3


class Pair(Enum):
    ONE = ("a", 1)


class Text(str):
    def encode(self, *_):
        return b"something else"


class Number(int):
    def __index__(self):
        return 99

    def bit_length(self):
        return 1


class Real(float):
    def __float__(self):
        return 99.0


class Bag(dict):
    def items(self):
        return [("other", 0)]

    keys = __iter__ = items


class Row(list):
    def __iter__(self):
        return iter([99])


class Group(set):
    __iter__ = Row.__iter__


Point = namedtuple("Point", "x y")


@dataclasses.dataclass
class User:
    name: str
    tags: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Small:
    name: str
    tags: tuple[str, ...] = ()


class Record(msgspec.Struct):
    tags: list[str]
    name: str
    note: str | msgspec.UnsetType = msgspec.UNSET


class Renamed(msgspec.Struct, rename="camel"):
    order_id: int


class Cat(msgspec.Struct, tag=True):
    name: str


class Dog(msgspec.Struct, tag=True):
    name: str


NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)

SAME = {
    "zeros": [0.0, -0.0],
    "NaNs": [float("nan"), -float("nan"), float("inf") - float("inf")],
    "decimals": [Decimal(100), Decimal("1E2"), Decimal("100.00"), Decimal("0100")],
    "decimal zeros": [Decimal(0), Decimal("-0.00"), Decimal("0E50")],
    "decimal NaNs": [Decimal("NaN"), Decimal("-NaN"), Decimal("sNaN"), Decimal("NaN123")],
    "sequences": [[1, 2], (1, 2), Row([1, 2]), Point(1, 2)],
    "sets": [{1, 2}, frozenset([2, 1]), Group([1, 2])],
    "a set with an Enum member and its value": [{Pair.ONE, ("a", 1)}, {("a", 1)}],
    "bytes": [b"abc", bytearray(b"abc"), memoryview(b"abc"), memoryview(b"aXbXc")[::2]],
    "text": ["red", Text("red"), Colour.RED],
    "ints": [1, Number(1), Level.LOW, Rights.READ],
    "big ints": [2**80, Number(2**80)],
    "flags": [3, Rights.READ | Rights.WRITE, Bits.ALL],
    "floats": [1.5, Real(1.5)],
    "Enum": [Pair.ONE, ("a", 1)],
    "dicts": [{"a": 1, "b": 2}, {"b": 2, "a": 1}, Bag(a=1, b=2), OrderedDict(b=2, a=1), defaultdict(int, a=1, b=2)],
    "classes with fields": [
        {"name": "ada", "tags": ["x"]}, User("ada", ["x"]), Small("ada", ("x",)), Record(["x"], "ada"),
    ],
    "a Struct by the names in its message": [Renamed(7), {"orderId": 7}],
    "a Struct with its tag": [Cat("tom"), {"type": "Cat", "name": "tom"}],
    "instants": [
        NOON, NOON.astimezone(timezone(timedelta(hours=5, minutes=30))), NOON.astimezone(ZoneInfo("Asia/Tokyo")),
    ],
    "naive datetimes": [datetime(2024, 10, 27, 2, 30), datetime(2024, 10, 27, 2, 30, fold=1)],
    "times": [time(12, tzinfo=UTC), time(14, tzinfo=timezone(timedelta(hours=2)))],
    "times without an offset": [time(12), time(12, fold=1), time(12, tzinfo=ZoneInfo("Europe/Berlin"))],
}  # fmt: skip

DIFFERENT = [
    *(None, False, True, 0, 1, -1, 1.0, Decimal(1), "1", b"1", "", b"", [], {}, set(), ()[:0] or [None], [[]]),
    *(["a", "b"], ["ab"], ["a", ["b"]], [["a"], "b"], {"a", "b"}, {"a": "b"}, "ab"),
    *({1: "x"}, {"1": "x"}, {True: "x"}, {b"1": "x"}, {1.5: "x"}, {(1,): "x"}, {None: "x"}),
    *(float("nan"), float("inf"), -float("inf"), Decimal("NaN"), Decimal("Infinity"), Decimal("-Infinity")),
    *("\u00e9", "e\u0301", "a\0b", "a"),
    *(NOON, NOON.replace(tzinfo=None), date(2024, 5, 1), datetime(2024, 5, 1), time(12), time(12, tzinfo=UTC)),
    *(timedelta(hours=12), timedelta(microseconds=1), UUID(int=1), UUID(int=2)),
    *(UUID(int=1).hex, UUID(int=1).bytes),
    *(Cat("tom"), Dog("tom"), {"name": "tom"}),
    *(datetime(2024, 10, 27, 2, 30, fold=fold, tzinfo=ZoneInfo("Europe/Berlin")) for fold in (0, 1)),
]


@pytest.mark.parametrize("values", SAME.values(), ids=SAME.keys())
def test_values_that_mean_the_same_have_one_form(values):
    assert len({canonical(value) for value in values}) == 1


def test_values_that_differ_have_a_form_each():
    assert len({canonical(value) for value in DIFFERENT}) == len(DIFFERENT)


def test_a_list_or_a_dict_of_any_size_keeps_every_item():
    many = {f"key {n}": [n] * 200 for n in range(3000)}
    backwards = dict(reversed(many.items()))

    assert canonical(backwards) == canonical(many)
    assert canonical(many | {"key 1": [1] * 199}) != canonical(many)


def test_an_aware_datetime_at_the_edge_of_the_calendar_has_a_form():
    for edge in (datetime.min, datetime.max):
        for hours in (-23, 23):
            moment = edge.replace(tzinfo=timezone(timedelta(hours=hours)))
            assert canonical(moment) == twin.form(moment)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (object(), "value"),
        (int, "value"),
        (1j, "value"),
        (User, "value"),
        (range(3), "value"),
        (iter([1]), "value"),
        (array.array("i", [1]), "value"),
        ({"user": {"tags": [0, 1, 2, object()]}}, "value.user.tags[3]"),
        ({"a b": (object(),)}, "value['a b'][0]"),
        ({b"k": object()}, "value[b'k']"),
        ({7: {None: object()}}, "value[7][<NoneType>]"),
        ({(1, object()): 1}, "value.keys()[1]"),
        ([{object()}], "value[0]{...}"),
        (User("ada", [object()]), "value.tags[0]"),
        (Record([], object()), "value.name"),
        (Enum("Odd", {"IT": object()}).IT, "value.value"),
    ],
)
def test_a_value_without_a_form_is_refused_with_the_path_to_it(value, path):
    with pytest.raises(TypeError) as caught:
        canonical(value)

    assert str(caught.value).split(": ")[0] == path


def test_the_path_in_a_call_begins_with_its_arguments():
    with pytest.raises(TypeError, match=r"^args\.user\.tags\[3\]: a value of type 'object' has no canonical form"):
        digest_named({"user": {"tags": [0, 1, 2, object()]}})


def test_a_key_in_a_path_is_cut_to_what_fits_a_line():
    with pytest.raises(TypeError) as caught:
        canonical({"k" * 10_000: {2**10_000: object()}})

    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("value", ["\ud800", ["\udfff"], {"\ud800": 1}, {"a": "x\ud800y"}])
def test_a_lone_surrogate_is_refused(value):
    with pytest.raises(ValueError, match="lone surrogate"):
        canonical(value)


def test_two_dict_keys_of_one_form_are_refused():
    with pytest.raises(ValueError, match=r"^value\.d: two keys"):
        canonical({"d": {Pair.ONE: 1, ("a", 1): 2}})


def test_only_a_dict_with_names_for_keys_is_a_call_by_name():
    with pytest.raises(TypeError, match="keywords must be strings"):
        digest_named({1: 2})


PRINT_KEYS = """
from decimal import Decimal
from uuid import UUID
from fastq_ext.canonical import Signature, digest_named
words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]
signature = Signature([("extra", "var_keyword", Signature.REQUIRED)])
calls = [
    {"x": set(words)}, {"x": frozenset(words)}, {"x": {(w, i) for i, w in enumerate(words)}},
    {"x": {w: {v: 1 for v in set(words)} for w in set(words)}}, {"x": {1: "a", "1": "b"}},
    {"x": {None: 1, True: 2, "x": 3, b"x": 4, UUID(int=1): 5, Decimal("1.5"): 6}}, {w: w for w in set(words)},
]
for call in calls:
    print(digest_named(call).decode(), signature.digest((), call).decode())
"""


def test_the_seed_of_the_interpreter_makes_no_difference():
    printed = set()
    for seed in ("0", "1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        printed.add(subprocess.check_output([sys.executable, "-P", "-c", PRINT_KEYS], env=environment))

    [lines] = printed
    assert len(lines.split()) == 14
