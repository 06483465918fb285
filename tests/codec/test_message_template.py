"""Template: what of a message comes from the task, what from the call, and how a wrong argument is named."""

import dataclasses
import pickle
import uuid

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq_ext.message import EncodeError, Message, Template
from tests.support import message_twin as twin
from tests.support.message_calls import NOW, UID, fields_of, template

RICH = msgspec.msgpack.encode
names = st.text(max_size=40)
spans = st.integers(0, 2**53)


@given(
    task=st.text(min_size=1, max_size=40),
    policy=st.integers(0, 255),
    lock_ttl_ms=spans,
    tracked=st.booleans(),
    retention_ms=spans,
    expires_in_ms=st.none() | spans,
    extras=st.sampled_from([{}, {"retries": 1, "headers": {"é": [None]}}]),
    due_ms=st.integers(0, 2**53),
    lock_key=names,
    job_id=names,
)
def test_a_message_holds_what_the_template_and_the_call_say(
    task, policy, lock_ttl_ms, tracked, retention_ms, expires_in_ms, extras, due_ms, lock_key, job_id
):
    encoded_extras = RICH(extras) if extras else b""
    made = Template(
        task,
        policy=policy,
        lock_ttl_ms=lock_ttl_ms,
        tracked=tracked,
        retention_ms=retention_ms,
        expires_in_ms=expires_in_ms,
        extras=encoded_extras,
    )

    raw = made.encode((1, "a"), {"b": None}, UID, NOW, due_ms, lock_key.encode(), job_id.encode())

    expected = twin.Fields(
        flags=twin.TRACKED if tracked else 0,
        policy=policy,
        uid=UID,
        enqueued_at=NOW,
        lock_ttl_ms=lock_ttl_ms if lock_key else 0,
        task=task,
        lock_key=lock_key.encode(),
        job_id=job_id,
        due_ms=due_ms or None,
        expires_ms=None if expires_in_ms is None else (due_ms or NOW) + expires_in_ms,
        retention_ms=retention_ms or None,
        extras=encoded_extras,
        payload=twin.encode_payload((1, "a"), {"b": None}),
    )
    assert raw == twin.build(expected)
    assert fields_of(Message(raw)) == expected
    assert Message(raw).extras == extras
    assert Message(raw).tracked is tracked


@pytest.mark.parametrize(
    ("args", "kwargs", "path"),
    [
        ((1, {1j}), {}, "b"),
        ((1, {"items": [0, 1, 2, {1}]}), {}, "b.items[3]"),
        ((1, {"two words": {3: [b"", {1}]}}), {}, "b['two words'][3][1]"),
        ((1, 2, 3, [{1}]), {}, "rest[1][0]"),
        ((), {"key": {"a": {1}}}, "key.a"),
        ((), {"other": [{1}]}, "other[0]"),
    ],
)
def test_an_error_leads_to_the_value(args, kwargs, path):
    made = template(parameters=("a", "b", "*rest", "key", "**extra"))

    with pytest.raises(EncodeError) as caught:
        made.encode(args, kwargs, UID, NOW)

    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: a set")


def test_an_argument_of_an_unknown_parameter_is_named_by_its_place():
    with pytest.raises(EncodeError, match=r"^args\[2\]\[0\]: .*annotate the parameter 'args'"):
        template(parameters=("a",)).encode((1, 2, [{1}]), {}, UID, NOW)


def test_what_has_no_name_of_its_own_is_to_be_annotated_at_its_parameter():
    made = template(parameters=("a", "*rest", "**extra"))

    with pytest.raises(EncodeError, match="parameter 'rest'"):
        made.encode((1, {1}), {}, UID, NOW)
    with pytest.raises(EncodeError, match="parameter 'extra'"):
        made.encode((), {"colour": {1}}, UID, NOW)


def test_only_arguments_of_rich_parameters_are_written_by_rich_encode():
    written = []

    def rich_encode(value):
        written.append(value)
        return RICH(value)

    made = template(
        parameters=("a", "b", "*rest", "c", "d", "**extra"), rich={"b", "rest", "d", "extra"}, rich_encode=rich_encode
    )

    raw = made.encode((1, (2,), (3,), (4,)), {"c": 5, "d": (6,), "e": (7,)}, UID, NOW)

    assert written == [(2,), (3,), (4,), (6,), (7,)]
    assert msgspec.msgpack.decode(Message(raw).payload) == [[1, [2], [3], [4]], {"c": 5, "d": [6], "e": [7]}]


def test_keyword_only_parameters_may_follow_a_lone_star():
    made = template(parameters=("a", "*", "b"), rich={"b"}, rich_encode=RICH)

    assert Message(made.encode((1,), {"b": (2,)}, UID, NOW)).payload == twin.encode_payload((1,), {"b": [2]})
    with pytest.raises(EncodeError, match=r"^args\[1\]: a tuple"):
        made.encode((1, (2,)), {}, UID, NOW)


def test_an_error_of_rich_encode_is_ours_with_the_parameter_and_the_cause():
    made = template(parameters=("a",), rich=("a",), rich_encode=RICH)

    with pytest.raises(EncodeError, match=r"^a: Encoding objects of type object is unsupported") as caught:
        made.encode((object(),), {}, UID, NOW)

    assert isinstance(caught.value.__cause__, TypeError)


def test_rich_encode_has_to_return_bytes():
    made = template(parameters=("a",), rich=("a",), rich_encode=lambda value: None)

    with pytest.raises(EncodeError, match=r"^a: rich_encode returned NoneType"):
        made.encode((1,), {}, UID, NOW)


@given(st.integers(60, 1200), st.sampled_from(["str", "list", "rich", "keyword"]))
def test_a_message_may_have_max_payload_bytes_and_not_one_more(most, kind):
    made = template("t", parameters=("a",), max_payload=most, rich={"a"} if kind == "rich" else (), rich_encode=RICH)

    def encode(size):
        value = [1] * size if kind == "list" else "x" * size
        return made.encode((), {"a": value}, UID, NOW) if kind == "keyword" else made.encode((value,), {}, UID, NOW)

    fits, too_large, refused = 0, 1300, None
    while too_large - fits > 1:
        middle = (fits + too_large) // 2
        try:
            encode(middle)
            fits = middle
        except EncodeError as error:
            too_large, refused = middle, error
    assert most - 2 <= len(encode(fits)) <= most  # a longer size field may cost two bytes more
    assert refused is not None
    assert refused.too_large
    assert refused.path in ("a", "")  # it may have been the empty kwargs that did not fit
    assert f"larger than {most} bytes" in str(refused)


def test_a_header_that_is_too_large_is_an_error_too():
    with pytest.raises(EncodeError, match="larger than 100 bytes") as caught:
        template(max_payload=100).encode((), {}, UID, NOW, 0, b"k" * 60)

    assert caught.value.too_large
    assert caught.value.path == ""


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("", {}),
        ("x" * 65536, {}),
        ("\ud800", {}),
        ("t", {"max_payload": 47}),
        ("t", {"max_payload": 2**31}),
        ("t", {"rich": ("a",)}),
        ("t", {"lock_ttl_ms": 2**53 + 1}),
        ("t", {"retention_ms": 2**53 + 1}),
        ("t", {"expires_in_ms": 2**53 + 1}),
    ],
    ids=lambda value: str(value)[:30],
)
def test_an_option_that_does_not_fit_is_refused(task, options):
    with pytest.raises(ValueError, match=r".+"):
        Template(task, **options)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ({"uid": b"short"}, "uid has 16 bytes"),
        ({"lock_key": b"x" * 65536}, "lock key has at most"),
        ({"lock_key": b"\xff"}, "lock key is UTF-8"),
        ({"job_id": b"x" * 65536}, "job_id has at most"),
        ({"job_id": b"\xc3"}, "job_id is UTF-8"),
        ({"now_ms": 2**53 + 1}, "at most 2"),
        ({"due_ms": 2**53 + 1}, "at most 2"),
    ],
)
def test_a_call_with_a_malformed_field_is_refused(call, reason):
    with pytest.raises(ValueError, match=reason):
        template().encode((), {}, **({"uid": UID, "now_ms": NOW} | call))


def test_keywords_are_str():
    with pytest.raises(EncodeError, match="keywords are str, not int"):
        template().encode((), {1: 2}, UID, NOW)


def test_the_arguments_are_a_tuple_and_a_dict():
    with pytest.raises(TypeError):
        template().encode([1], {}, UID, NOW)
    with pytest.raises(TypeError):
        template().encode((1,), None, UID, NOW)


def test_an_encode_error_survives_a_pickle():
    error = pickle.loads(pickle.dumps(EncodeError("too much", "order.items[3]", True)))

    assert (str(error), error.path, error.too_large) == ("order.items[3]: too much", "order.items[3]", True)


def test_uuids_come_back_from_a_rich_parameter():
    made = template(parameters=("a",), rich=("a",), rich_encode=RICH)
    value = uuid.UUID(int=7)

    payload = Message(made.encode((value,), {}, UID, NOW)).payload

    assert msgspec.msgpack.decode(payload, type=tuple[tuple[uuid.UUID], dict]) == ((value,), {})


def test_the_twin_has_every_field_of_a_message():
    told = {name for name in dir(Message) if not name.startswith("_")} - {"raw", "replace", "tracked"}

    assert told == {field.name for field in dataclasses.fields(twin.Fields)} - {"raw"}
