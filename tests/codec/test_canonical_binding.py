"""How a call is bound to its task's parameters, and which calls are one."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from fastq_ext.canonical import Signature, digest_named
from tests.support import canonical_twin as twin

KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "positional",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "positional_or_keyword",
    inspect.Parameter.VAR_POSITIONAL: "var_positional",
    inspect.Parameter.KEYWORD_ONLY: "keyword",
    inspect.Parameter.VAR_KEYWORD: "var_keyword",
}


def signature_of(function: Callable[..., Any]) -> Signature:
    parameters = inspect.signature(function).parameters.values()
    return Signature(
        [
            (each.name, KINDS[each.kind], Signature.REQUIRED if each.default is each.empty else each.default)
            for each in parameters
        ]
    )


def key_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> bytes:
    return signature_of(function).digest(args, kwargs)


def plain(a, b): ...
def defaults(a, b=2, *, c=3): ...
def by_place(a, b=None, /, c=1): ...
def by_keyword(*, z, a=1): ...
def rest(a, *more, flag=False): ...
def extra(a, /, b=1, **others): ...
def everything(a, b=1, /, c=2, *more, d, e=3, **others): ...
def nothing(): ...


CALLS = [
    ((), {}),
    ((1,), {}),
    ((1, 2), {}),
    ((1, 2, 3), {}),
    ((1, 2, 3, 4, 5), {}),
    ((), {"a": 1}),
    ((), {"a": 1, "b": 2}),
    ((), {"z": 1}),
    ((1,), {"a": 2}),
    ((1,), {"b": 2}),
    ((1,), {"c": 2}),
    ((1,), {"d": 2}),
    ((1, 2), {"b": 3}),
    ((1, 2, 3), {"d": 4}),
    ((1, 2, 3, 4), {"d": 5, "e": 6, "z": 7}),
    ((1,), {"a": 2, "b": 3, "others": 4}),
    ((1,), {"d": 2, "a": 3, "more": 4, "z": 5}),
    ((1,), {"flag": True}),
    ((1,), {"flag": True, "more": 2}),
    ((1,), {"unknown": 2}),
]


@pytest.mark.parametrize("function", [plain, defaults, by_place, by_keyword, rest, extra, everything, nothing])
@pytest.mark.parametrize(("args", "kwargs"), CALLS)
def test_a_call_is_bound_as_python_binds_it(function, args, kwargs):
    signature = signature_of(function)
    try:
        function(*args, **kwargs)  # rather than inspect, which lets f(a, /, **extra) be called as f(a=1) in 3.13
    except TypeError:
        with pytest.raises(TypeError):
            signature.bind(args, kwargs)
        with pytest.raises(TypeError):
            signature.digest(args, kwargs)
    else:
        expected = inspect.signature(function).bind(*args, **kwargs).arguments
        assert list(signature.bind(args, kwargs).items()) == list(expected.items())
        assert len(signature.digest(args, kwargs)) == 32


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "message"),
    [
        (plain, (1,), {}, "missing a required argument: 'b'"),
        (plain, (1, 2, 3), {}, "too many positional arguments"),
        (plain, (1, 2), {"b": 3}, "multiple values for argument 'b'"),
        (plain, (1, 2), {"c": 3}, "got an unexpected keyword argument 'c'"),
        (rest, (1,), {"more": 3}, "got an unexpected keyword argument 'more'"),
        (by_place, (1,), {"b": 3}, "'b' parameter is positional only, but was passed as a keyword"),
        (extra, (1,), {1: 3}, "keywords must be strings"),
    ],
)
def test_a_call_that_the_function_would_not_take_is_refused_in_the_words_of_python(function, args, kwargs, message):
    with pytest.raises(TypeError) as caught:
        signature_of(function).bind(args, kwargs)

    assert str(caught.value) == message


def test_a_call_is_one_however_it_is_written():
    keys = {
        key_of(defaults, 1),
        key_of(defaults, 1, 2),
        key_of(defaults, a=1),
        key_of(defaults, b=2, a=1),
        key_of(defaults, 1, b=2, c=3),
        key_of(defaults, 1, c=3),
        digest_named({"a": 1}),
        twin.digest({"a": 1}),
    }

    assert len(keys) == 1


def test_calls_with_other_arguments_are_others():
    keys = [
        key_of(defaults, 2),
        key_of(defaults, 1),
        key_of(defaults, True),
        key_of(defaults, 1, 3),
        key_of(defaults, 1, c=2),
        key_of(defaults, "a:b", "c"),
        key_of(defaults, "a", "b:c"),
        key_of(defaults, "a", ""),
        key_of(defaults, "a"),
        key_of(defaults, ["a", "b"]),
        key_of(defaults, "a", "b"),
        key_of(defaults, ["a"], "b"),
    ]

    assert len(set(keys)) == len(keys)


def test_a_parameter_with_a_default_can_be_added_without_changing_the_key():
    def before(order_id): ...
    def after(priority=0, *, order_id, dry_run=False): ...

    assert key_of(after, order_id="o-1") == key_of(before, "o-1")
    assert key_of(after, 1, order_id="o-1") != key_of(before, "o-1")


def test_a_default_in_another_spelling_is_the_default():
    @dataclasses.dataclass(frozen=True)
    class Options:
        level: int = 1

    def call(a=(1, 2), b=float("nan"), c=Options(), d=()): ...

    assert key_of(call, [1, 2], float("nan"), {"level": 1}, []) == key_of(call)
    assert key_of(call, [1, 2.0]) != key_of(call)
    assert key_of(call, d=[0]) != key_of(call)


def test_a_default_without_a_form_is_known_by_identity():
    missing = object()

    def call(a=missing, b=1): ...

    assert key_of(call, missing) == key_of(call) == key_of(call, missing, 1)
    assert key_of(call, None) != key_of(call)
    with pytest.raises(TypeError, match=r"^args\.a: "):
        key_of(call, object())


def test_a_default_that_was_changed_counts_as_it_was_defined():
    default = [1]

    def call(a=default): ...

    signature = signature_of(call)
    default.append(2)

    assert signature.digest(([1],), {}) == signature.digest((), {})
    assert signature.digest((default,), {}) != signature.digest((), {})


def test_arguments_beyond_the_parameters_are_a_list_under_their_name():
    assert key_of(rest, 1, 2, 3) == digest_named({"a": 1, "more": [2, 3]})
    assert key_of(rest, 1) == digest_named({"a": 1})
    assert key_of(rest, 1, (2, 3)) != key_of(rest, 1, 2, 3)


def test_extra_keywords_stand_beside_the_parameters():
    assert key_of(extra, 1, z=2, b=3, aa=4) == digest_named({"a": 1, "z": 2, "b": 3, "aa": 4})
    assert key_of(extra, 1, others=2) == digest_named({"a": 1, "others": 2})


def test_an_extra_keyword_with_the_name_of_another_parameter_stays_apart():
    keys = [
        key_of(everything, 1, d=0),
        key_of(everything, 1, d=0, a=1),
        key_of(everything, 1, d=0, a=2),
        key_of(everything, 1, 2, d=0),
        key_of(everything, 1, d=0, b=2),
        key_of(everything, 1, 1, 2, 5, d=0),
        key_of(everything, 1, d=0, more=[5]),
    ]

    assert len(set(keys)) == len(keys)
    assert keys[1] == twin.digest({"a": 1, b"a": 1, "d": 0})


def test_many_parameters_and_extras_are_all_counted():
    names = [f"p{n}" for n in range(300)]
    signature = Signature([(name, "keyword", Signature.REQUIRED) for name in names])
    open_signature = Signature([("others", "var_keyword", Signature.REQUIRED)])
    call = dict.fromkeys(names, 1)

    assert signature.digest((), call) == open_signature.digest((), call) == twin.digest(call)
    assert signature.digest((), call | {"p7": 2}) == twin.digest(call | {"p7": 2}) != twin.digest(call)


def test_only_the_named_parameters_count():
    signature = signature_of(everything)
    call = ((1, 2, 3, 4), {"d": object(), "e": 5, "y": 6, "z": 7})

    assert signature.digest(*call, only=("c", "a")) == twin.digest({"a": 1, "c": 3})
    assert signature.digest(*call, only=("more", "e")) == twin.digest({"more": [4], "e": 5})
    assert signature.digest(*call, only=("z",)) == twin.digest({"z": 7})
    assert signature.digest(*call, only=("others",)) == twin.digest({"y": 6, "z": 7})
    assert signature.digest(*call, only=()) == twin.digest({})


def test_a_named_parameter_that_was_not_passed_counts_as_its_default():
    signature = signature_of(defaults)

    assert signature.digest((1,), {}, ("a", "c")) == signature.digest((1, 5), {"c": 3}, ("a", "c"))


def test_a_call_must_fit_even_where_the_misfit_would_not_count():
    with pytest.raises(TypeError, match="missing a required argument: 'a'"):
        signature_of(defaults).digest((), {"c": 1}, ("c",))


def test_a_signature_that_no_function_can_have_is_refused():
    with pytest.raises(ValueError, match="unknown kind"):
        Signature([("a", "sideways", Signature.REQUIRED)])
    with pytest.raises(ValueError, match="same name"):
        Signature([("a", "keyword", 1), ("a", "keyword", 2)])
