"""Unique: what is refused where it is written, and which key a call gets."""

import itertools
import logging
from datetime import timedelta

import pytest

from fastq.codec import read_signature
from fastq.errors import PayloadError, UniqueConfigError
from fastq.unique import Unique, lock_key_maker

UNTIL = ("done", "success", "start", "ttl")
ON_CONFLICT = ("raise", "skip", "replace", "rerun")


def send(order_id: str, template: str = "receipt", *, urgent: bool = False) -> None: ...


def key(unique, *args, task="shop.send", function=send, **kwargs):
    signature = read_signature(task, function) if function is not None else None
    return lock_key_maker(unique, task, signature)(args, kwargs)


@pytest.mark.parametrize(
    "ttl", [None, 0, 0.999, -1, float("nan"), float("inf"), "60", True, timedelta(milliseconds=999)]
)
def test_a_ttl_is_required_and_at_least_a_second(ttl):
    with pytest.raises(UniqueConfigError, match="ttl"):
        Unique(ttl)


def test_a_unique_without_any_ttl_is_refused():
    with pytest.raises(UniqueConfigError, match="needs a ttl"):
        Unique()


@pytest.mark.parametrize(("ttl", "seconds"), [(1, 1), (1.5, 1.5), (timedelta(hours=1), 3600)])
def test_a_ttl_is_seconds_or_a_timedelta(ttl, seconds):
    assert Unique(ttl).ttl == seconds


def test_the_refusal_is_a_value_error_too():
    with pytest.raises(ValueError, match="ttl"):
        Unique(ttl=0)


@pytest.mark.parametrize(("until", "conflict", "renew"), list(itertools.product(UNTIL, ON_CONFLICT, [False, True])))
def test_a_lock_that_goes_before_its_job_ends_has_neither_renew_nor_replace_nor_rerun(until, conflict, renew):
    early = until in ("start", "ttl")
    if early and (renew or conflict in ("replace", "rerun")):
        with pytest.raises(UniqueConfigError, match=f'with until="{until}"'):
            Unique(60, until=until, on_conflict=conflict, renew=renew)
    else:
        unique = Unique(60, until=until, on_conflict=conflict, renew=renew)
        assert (unique.until, unique.on_conflict, unique.renew) == (until, conflict, renew)


@pytest.mark.parametrize("conflict", ["raise", "skip", "rerun"])
def test_max_wait_without_replace_is_refused(conflict):
    with pytest.raises(UniqueConfigError, match="max_wait"):
        Unique(60, on_conflict=conflict, max_wait=5)


def test_max_wait_with_replace_is_seconds():
    assert Unique(60, on_conflict="replace", max_wait=timedelta(minutes=5)).max_wait == 300


@pytest.mark.parametrize(
    "options",
    [
        {"until": "end"},
        {"until": None},
        {"on_conflict": "ignore"},
        {"renew": 1},
        {"key": ""},
        {"key": ()},
        {"key": 3},
        {"key": b"order_id"},
        {"key": "not a name"},
        {"key": ["order_id", 2]},
    ],
)
def test_a_word_that_is_none_of_those_allowed_is_refused(options):
    with pytest.raises(UniqueConfigError, match=next(iter(options))):
        Unique(60, **options)


def test_the_policy_byte_tells_all_policies_apart():
    allowed = [
        Unique(60, until=until, on_conflict=conflict, renew=renew)
        for until, conflict, renew in itertools.product(UNTIL, ON_CONFLICT, [False, True])
        if not (until in ("start", "ttl") and (renew or conflict in ("replace", "rerun")))
    ]

    assert Unique(60).policy == 0
    assert Unique(60, until="ttl").policy == 3
    assert Unique(60, renew=True).policy == 4
    assert Unique(60, on_conflict="rerun").policy == 3 << 3
    assert len({unique.policy for unique in allowed}) == len(allowed)


def test_equal_options_make_equal_uniques():
    assert Unique(60, key=["order_id"]) == Unique(60.0, key="order_id")
    assert hash(Unique(60, key=["order_id"])) == hash(Unique(60.0, key="order_id"))
    assert Unique(60) != Unique(61)
    assert repr(Unique(60, key=Unique.TASK, until="ttl")) == "Unique(ttl=60.0, key=Unique.TASK, until='ttl')"


# --- keys


def test_the_key_begins_with_the_task_percent_encoded():
    assert key(Unique(60, key=Unique.TASK), "o-1", task="shop:mail/send").startswith(b"shop%3Amail%2Fsend:")


def test_a_call_written_differently_has_the_same_key():
    forms = {
        key(Unique(60), "o-1"),
        key(Unique(60), "o-1", "receipt"),
        key(Unique(60), order_id="o-1"),
        key(Unique(60), "o-1", template="receipt", urgent=False),
    }

    assert len(forms) == 1


def test_other_arguments_have_another_key():
    forms = [key(Unique(60), "o-1"), key(Unique(60), "o-2"), key(Unique(60), "o-1", "invoice"), key(Unique(60), "")]

    assert len(set(forms)) == len(forms)


def test_a_key_of_names_looks_at_these_arguments_only():
    unique = Unique(60, key="order_id")
    assert key(unique, "o-1") == key(unique, "o-1", "invoice", urgent=True)
    assert key(unique, "o-1") != key(unique, "o-2")

    both = Unique(60, key=("order_id", "template"))
    assert key(both, "o-1", urgent=True) == key(both, "o-1", template="receipt")
    assert key(both, "o-1") != key(both, "o-1", "invoice")


def test_a_key_of_a_name_that_the_task_has_not_is_refused():
    with pytest.raises(UniqueConfigError, match="no such parameter, it has order_id, template, urgent"):
        key(Unique(60, key="order"), "o-1")


def test_a_key_may_name_what_a_task_takes_by_two_stars():
    def track(event: str, **labels: str) -> None: ...

    unique = Unique(60, key="tenant")
    assert key(unique, "a", tenant="x", function=track) == key(unique, "b", tenant="x", other="y", function=track)
    assert key(unique, "a", tenant="x", function=track) != key(unique, "a", tenant="y", function=track)


def test_a_key_function_gets_the_call_as_the_task_would_with_its_defaults():
    seen = []

    def own(order_id, template, *, urgent):
        seen.append((order_id, template, urgent))
        return f"{order_id}/{template}"

    unique = Unique(60, key=own)

    assert key(unique, "o-1") == b"shop.send:o-1/receipt"
    assert key(unique, order_id="o-1", urgent=True, template="x") == b"shop.send:o-1/x"
    assert seen == [("o-1", "receipt", False), ("o-1", "x", True)]


@pytest.mark.parametrize("text", ["a", "a:b", "x" * 200, "é" * 100, "with space", "%3A"])
def test_a_string_of_at_most_200_bytes_is_the_key_verbatim(text):
    assert key(Unique(60, key=lambda *_, **__: text), "o-1") == b"shop.send:" + text.encode()


def test_a_longer_string_or_one_with_a_leading_hash_sign_is_digested_so_that_no_two_kinds_of_key_can_meet():
    content = key(Unique(60), "o-1")
    digest = content.removeprefix(b"shop.send:").decode()

    kinds = [
        content,
        key(Unique(60, key=lambda *_, **__: digest), "o-1"),
        key(Unique(60, key="order_id"), "o-1"),
        key(Unique(60, key=Unique.TASK), "o-1"),
        key(Unique(60, key=lambda *_, **__: "#task"), "o-1"),
        key(Unique(60, key=lambda *_, **__: "y" * 201), "o-1"),
        key(Unique(60, key=lambda *_, **__: "y" * 202), "o-1"),
    ]

    assert len(set(kinds)) == len(kinds)
    assert all(len(one) < 60 for one in kinds)


def test_two_tasks_never_share_a_key():
    text = Unique(60, key=lambda *_, **__: "z")
    colon = Unique(60, key=lambda *_, **__: "y:z")

    assert key(text, "o-1", task="x:y") != key(colon, "o-1", task="x")
    assert key(Unique(60), "o-1", task="a") != key(Unique(60), "o-1", task="b")


@pytest.mark.parametrize("nothing", ["", None])
def test_a_key_function_without_an_answer_locks_the_whole_task_and_warns_once(nothing, caplog):
    maker = lock_key_maker(Unique(60, key=lambda *_, **__: nothing), "shop.send", read_signature("shop.send", send))

    with caplog.at_level(logging.WARNING, "fastq"):
        keys = {maker((order,), {}) for order in ("o-1", "o-2")}

    assert keys == {key(Unique(60, key=Unique.TASK), "o-1")}
    assert len(caplog.records) == 1


@pytest.mark.parametrize("answer", [5, 0, b"x", ["a"]])
def test_a_key_function_that_returns_no_string_is_an_error(answer):
    with pytest.raises(PayloadError, match=f"returned a {type(answer).__name__}, not a str"):
        key(Unique(60, key=lambda *_, **__: answer), "o-1")


def test_a_key_with_a_lone_surrogate_is_an_error():
    with pytest.raises(PayloadError, match="lone surrogate"):
        key(Unique(60, key=lambda *_, **__: "\ud800"), "o-1")


def test_an_argument_without_a_canonical_form_is_an_error_that_names_its_path():
    with pytest.raises(PayloadError, match=r"order_id\[1\]\.a"):
        key(Unique(60), [1, {"a": object()}])


def test_a_call_that_does_not_fit_the_task_is_an_error():
    with pytest.raises(PayloadError, match="order_id"):
        key(Unique(60))
    with pytest.raises(PayloadError, match="order_id"):
        key(Unique(60, key=lambda *_, **__: "x"))


def test_a_producer_without_the_function_makes_the_same_key_of_keywords():
    for unique in (Unique(60), Unique(60, key="order_id"), Unique(60, key=Unique.TASK)):
        assert key(unique, order_id="o-1", function=None) == key(unique, "o-1")


def test_without_the_function_positional_arguments_make_a_key_of_their_own():
    forms = [key(Unique(60), order, function=None) for order in ("o-1", "o-2")] + [key(Unique(60), "o-1")]

    assert len(set(forms)) == len(forms)
    with pytest.raises(PayloadError, match="pass keywords"):
        key(Unique(60, key="order_id"), "o-1", function=None)
