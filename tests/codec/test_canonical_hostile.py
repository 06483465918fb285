"""Values that are out to crash, hang or leak: each gives an error or a form, and nothing is left behind."""

import contextlib
import dataclasses
import gc
import sys
import tracemalloc
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pytest

from fastq_ext.canonical import Signature, canonical, digest_named, digest_text
from tests.support import canonical_twin as twin

DEEPEST = 64


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


class Box(Enum):
    LIST = []  # noqa: RUF012


@dataclasses.dataclass
class Node:
    next: Any = None


class Link(msgspec.Struct):
    next: Any = None


class Acting(tzinfo):
    """Runs code in the middle of a hash."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self.act = act

    def utcoffset(self, _):
        return self.act() or timedelta(0)


def acting(act: Callable[[], Any]) -> datetime:
    return datetime(2024, 1, 1, tzinfo=Acting(act))


def test_containers_can_be_nested_so_deep_and_no_deeper():
    assert canonical(nested(DEEPEST)) == twin.form(nested(DEEPEST))
    with pytest.raises(ValueError, match=r"^value(\[0\]){64}: more than 64 containers inside one another"):
        canonical(nested(DEEPEST + 1))
    with pytest.raises(ValueError, match="more than 64"):
        canonical(nested(100_000))


def test_the_arguments_themselves_are_the_first_container():
    signature = Signature([("a", "positional", Signature.REQUIRED)])

    assert signature.digest((nested(DEEPEST - 1),), {}) == digest_named({"a": nested(DEEPEST - 1)})
    for attempt in (lambda value: signature.digest((value,), {}), lambda value: digest_named({"a": value})):
        with pytest.raises(ValueError, match=r"^args\.a\[0\]"):
            attempt(nested(DEEPEST))


def test_what_contains_itself_is_refused_with_the_path_to_where_it_returns():
    items: list[Any] = [1]
    items.append(items)
    mapping: dict[str, Any] = {"a": {}}
    mapping["a"]["b"] = [mapping]
    node, link = Node(), Link()
    node.next, link.next = (node,), {"again": link}
    member = Box.LIST
    member.value[:] = [member]

    for value, path in [
        (items, "value[1]"),
        (mapping, "value.a.b[0]"),
        (node, "value.next[0]"),
        (link, "value.next.again"),
        (member, "value.value[0]"),
    ]:
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            canonical(value)
        assert str(caught.value) == f"{path}: contains itself"


def test_one_value_in_two_places_is_no_cycle():
    shared = {"a": [1]}

    assert canonical([shared, {"b": shared}]) == canonical([{"a": [1]}, {"b": {"a": [1]}}])


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda odd: [odd, *("x" * n for n in range(50))], lambda value: value.clear()),
        (lambda odd: [odd, "x"], lambda value: value.extend(range(10_000))),
        (lambda odd: {"k": odd} | {f"k{n}": "x" * n for n in range(50)}, lambda value: value.clear()),
        (lambda odd: {"k": odd}, lambda value: value.update({n: n for n in range(10_000)})),
        (lambda odd: {odd, *range(50)}, lambda value: value.clear()),
        (lambda odd: {odd, "x"}, lambda value: value.update(range(10_000))),
    ],
    ids=["list shrinks", "list grows", "dict shrinks", "dict grows", "set shrinks", "set grows"],
)
def test_a_container_that_changes_while_it_is_hashed_is_refused(make, change):
    changed = []

    def act():
        if hashing and not changed:
            changed.append(True)
            change(value)

    hashing = False
    value = make(acting(act))
    hashing = True

    with pytest.raises(RuntimeError, match="changed"):
        canonical(value)
    assert changed


def test_a_dict_that_grows_for_ever_ends_the_hash():
    value: dict[Any, Any] = {}

    def act():
        for _ in range(3):
            value[len(value)] = acting(act)

    value[0] = acting(act)

    with pytest.raises(RuntimeError, match="changed"):
        canonical(value)


def test_keywords_that_go_away_while_a_call_is_hashed_do_no_harm():
    signature = Signature([(name, "keyword", Signature.REQUIRED) for name in "abc"] + [("extra", "var_keyword", None)])
    kwargs: dict[str, Any] = {name: [name] for name in "bcdefgh"}
    kwargs["a"] = acting(kwargs.clear)
    kwargs["d"] = acting(kwargs.clear)

    assert len(signature.digest((), kwargs)) == 32
    assert kwargs == {}


def test_a_hash_inside_a_hash_does_not_disturb_it():
    inner = []
    value = [acting(lambda: inner.append(digest_text("inside"))), "after"]

    assert canonical(value)[-7:] == b"s\x05after"
    assert inner == [digest_text("inside")]


def test_the_error_of_a_value_s_own_code_passes_with_the_path_as_a_note():
    def fail():
        raise OSError("no time zones here")

    class Holder(Node):
        def __getattribute__(self, name):
            if name == "next":
                raise LookupError("no field here")
            return super().__getattribute__(name)

    with pytest.raises(OSError, match="no time zones here") as caught:
        digest_named({"at": [acting(fail)]})
    assert caught.value.__notes__ == ["while args.at[0] was hashed"]
    with pytest.raises(LookupError) as missing:
        digest_named({"holder": Holder()})
    assert missing.value.__notes__ == ["while args.holder was hashed"]


@pytest.mark.parametrize("offset", [timedelta(days=2), "an hour", 3600])
def test_an_offset_that_is_none_is_refused(offset):
    with pytest.raises((TypeError, ValueError), match="offset"):
        canonical(acting(lambda: offset))


@pytest.mark.parametrize("pretended", [Enum, Decimal, UUID, memoryview, msgspec.Struct])
def test_a_value_that_pretends_to_be_of_another_class_is_refused(pretended):
    class Pretender:
        __class__ = pretended  # type: ignore[assignment]

    with pytest.raises((TypeError, AttributeError)):
        canonical(Pretender())


def test_a_released_memoryview_is_refused():
    view = memoryview(b"abc")
    view.release()

    with pytest.raises(ValueError, match=r"^value: .*released"):
        canonical(view)


def test_a_signature_cannot_be_changed_by_starting_it_again():
    signature = Signature([("a", "keyword", 1)])
    before = signature.digest((), {"a": 2})

    signature.__init__([("b", "keyword", 1)])

    assert signature.digest((), {"a": 2}) == before


@pytest.mark.parametrize("wrong", [((1,), None), (None, {}), ([1], {}), ((1,), {}, ["a"])])
def test_a_call_is_a_tuple_and_a_dict(wrong):
    with pytest.raises(TypeError):
        Signature([("a", "positional", 1)]).digest(*wrong)


SIGNATURE = Signature([("a", "positional", object()), ("rest", "var_positional", None), ("x", "var_keyword", None)])
ACTIONS = [
    lambda value: canonical(value),
    lambda value: digest_named({"b": value, "a": 1}),
    lambda value: SIGNATURE.digest((value, value), {"z": value, "a": value}),
    lambda value: SIGNATURE.bind((value, value), {"z": value, "a": value}),
]
GOOD = [
    *(None, True, 1, -(2**100), 1.5, "é" * 600, b"a", [1, (2,)], {"b": 1, "a": {"c": 2}}, {3, 1, 2}),
    *({n: str(n) for n in range(200, 0, -1)}, memoryview(b"abc"), UUID(int=1), Node(Link(1)), Box.LIST),
    *(datetime(2024, 1, 1), acting(lambda: None), timedelta(1), Decimal("1.50")),
]
BAD = [object(), [object()], {"a": {1: object()}}, {object(): 1}, {object()}, nested(70), "\ud800", Node(object())]


def everything_once() -> None:
    """Every kind of value and of error, by every way in."""
    for value in [*GOOD, *BAD]:
        for act in ACTIONS:
            with contextlib.suppress(TypeError, ValueError):
                act(value)


def test_nothing_is_left_in_memory_after_any_value_or_error():
    for _ in range(20):
        everything_once()
    gc.collect()
    tracemalloc.start()
    try:
        everything_once()
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(300):
            everything_once()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert after - before < 300 * 50  # one object lost each time would be more


def test_no_reference_to_what_was_hashed_is_kept_or_dropped():
    value, default, refused = ["x" * 100, {"k": "y" * 100}], object(), object()
    signature = Signature([("a", "positional", Signature.REQUIRED), ("b", "keyword", default)])
    watched = [value, value[0], value[1], value[1]["k"], default, refused]
    before = [sys.getrefcount(each) for each in watched]

    for _ in range(1000):
        signature.digest((value,), {"b": default})
        signature.bind((value,), {"b": default})
        with contextlib.suppress(TypeError):
            signature.digest((value,), {"b": [refused]})
        with contextlib.suppress(TypeError):
            canonical({"k": [value, {"r": refused}]})

    assert [sys.getrefcount(each) for each in watched] == before
