"""Generated values: the extension agrees with its twin, and no two different values share a form."""

import random
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fastq_ext.canonical import Signature, canonical, digest_named
from tests.support import canonical_twin as twin


class Whole(IntEnum):
    ONE = 1
    MANY = 300


class Mixed(Enum):
    TEXT = "a"
    PAIR = (1, "a")
    NOTHING = None


class Name(str):
    pass


class Amount(int):
    pass


class Items(list):
    pass


OFFSETS = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
ZONES = st.one_of(st.none(), st.just(UTC), OFFSETS)
# A narrow space, in which equal values and near misses turn up often, and a wide one.
NARROW = st.sampled_from(
    [
        *(None, False, True, 0, 1, -1, 256, 0.0, -0.0, 1.0),
        *("", "a", "1", "\0", b"", b"a", bytearray(b"a")),
        *(Whole.ONE, Mixed.TEXT, Mixed.PAIR, Mixed.NOTHING),
        *(Decimal(1), Decimal("1.00"), Decimal("0E5")),
        *(timedelta(0), time(0), time(0, tzinfo=UTC)),
    ]
)
WIDE = st.one_of(
    st.integers(),
    st.integers(-(2**300), 2**300),
    st.floats(),
    st.text(max_size=200),
    st.binary(max_size=200),
    st.decimals().filter(lambda number: not number.is_snan()),  # which Python can neither compare nor hash
    st.uuids(),
    st.dates(),
    st.datetimes(timezones=ZONES),
    st.times(timezones=ZONES),
    st.timedeltas(),
    st.text(max_size=5).map(Name),
    st.integers(-300, 300).map(Amount),
)
SCALARS = NARROW | WIDE
HASHABLE = SCALARS.filter(lambda value: type(value) is not bytearray)
KEYS = st.recursive(HASHABLE, lambda keys: st.tuples(keys, keys), max_leaves=3)


def one_form_each(mapping: dict[Any, Any]) -> bool:
    return len({twin.form(key) for key in mapping}) == len(mapping)


def containers(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(values, max_size=5)
    return st.one_of(
        lists,
        lists.map(tuple),
        lists.map(Items),
        st.frozensets(KEYS, max_size=5),
        st.sets(KEYS, max_size=5),
        st.dictionaries(KEYS, values, max_size=5).filter(one_form_each),
    )


VALUES = st.recursive(SCALARS, containers, max_leaves=12)
SMALL_VALUES = st.recursive(NARROW, containers, max_leaves=4)
NAMES = st.text("abc_", min_size=1, max_size=3)


def rewritten(value: Any, choice: random.Random) -> Any:
    """The same value in another spelling: order, kind of container, class, zeros, time zone."""
    match value:
        case Enum():
            return value.value
        case list() | tuple():
            return choice.choice([list, tuple, Items])(rewritten(item, choice) for item in value)
        case dict():
            items = [(key, rewritten(item, choice)) for key, item in value.items()]
            choice.shuffle(items)
            return dict(items)
        case set() | frozenset():
            elements = list(value)
            choice.shuffle(elements)
            return choice.choice([set, frozenset])(elements)
        case bytes() | bytearray():
            return choice.choice([bytes, bytearray, memoryview])(value)
        case str():
            return choice.choice([str, Name])(value)
        case bool():
            return value
        case int():
            return choice.choice([int, Amount])(value)
        case Decimal() if value.is_finite():
            sign, digits, exponent = value.as_tuple()
            return Decimal((sign, (*digits, 0), int(exponent) - 1))
        case datetime() if value.tzinfo and 1 < value.year < 9999:
            return value.astimezone(timezone(timedelta(hours=choice.randrange(-23, 24))))
    return value


@settings(deadline=None, max_examples=200)
@given(VALUES)
def test_the_form_is_that_of_the_twin(value):
    assert canonical(value) == twin.form(value)


@settings(deadline=None, max_examples=200)
@given(VALUES, st.randoms(use_true_random=False))
def test_a_value_in_another_spelling_has_the_same_form(value, choice):
    other = rewritten(value, choice)

    assert twin.meaning(other) == twin.meaning(value)
    assert canonical(other) == canonical(value)


@settings(deadline=None, max_examples=200)
@given(st.lists(SMALL_VALUES | VALUES, min_size=2, max_size=8))
def test_values_share_a_form_exactly_if_they_mean_the_same(values):
    by_form: dict[bytes, set[Any]] = {}
    by_meaning: dict[Any, set[bytes]] = {}
    for value in values:
        by_form.setdefault(canonical(value), set()).add(twin.meaning(value))
        by_meaning.setdefault(twin.meaning(value), set()).add(canonical(value))

    assert all(len(meanings) == 1 for meanings in by_form.values())
    assert all(len(forms) == 1 for forms in by_meaning.values())


@settings(deadline=None, max_examples=150)
@given(st.lists(SMALL_VALUES, min_size=2, max_size=8))
def test_no_form_is_the_beginning_of_another(values):
    forms = sorted({canonical(value) for value in values})

    assert not any(later.startswith(form) for form, later in pairwise(forms))


@settings(deadline=None, max_examples=150)
@given(st.dictionaries(NAMES, VALUES, max_size=6), st.randoms(use_true_random=False))
def test_a_call_by_name_has_the_digest_of_the_twin_and_of_its_signature(arguments, choice):
    names = list(arguments)
    choice.shuffle(names)
    places = choice.randint(0, len(names))
    kinds = ["positional_or_keyword"] * places + ["keyword"] * (len(names) - places)
    signature = Signature([(name, kind, Signature.REQUIRED) for name, kind in zip(names, kinds, strict=True)])
    by_place = choice.randint(0, places)
    args = tuple(arguments[name] for name in names[:by_place])
    kwargs = {name: arguments[name] for name in names[by_place:]}

    key = digest_named(arguments)

    assert key == twin.digest(arguments)
    assert signature.digest(args, kwargs) == key
