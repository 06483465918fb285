"""The vectors of docs/canonical_vectors.json: frozen, since producers in other languages rely on them."""

import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from fastq_ext.canonical import canonical, digest_named, digest_text
from tests.support import canonical_twin as twin

DOCS = Path(__file__).parents[2] / "docs"
VECTORS = json.loads((DOCS / "canonical_vectors.json").read_text("utf-8"))

READERS: dict[str, Any] = {
    "none": lambda _: None,
    "bool": bool,
    "int": int,
    "float": float,
    "decimal": Decimal,
    "str": str,
    "bytes": bytes.fromhex,
    "list": lambda items: [read(item) for item in items],
    "set": lambda elements: {frozen(read(element)) for element in elements},
    "map": lambda items: {frozen(read(key)): read(value) for key, value in items},
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda microseconds: timedelta(microseconds=int(microseconds)),
    "uuid": UUID,
}


def read(notation: list[Any]) -> Any:
    """The Python value of a vector: [type, text or parts]."""
    kind, content = notation
    return READERS[kind](content)


def frozen(value: Any) -> Any:
    return tuple(map(frozen, value)) if isinstance(value, list) else value


def named(vectors: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(vector, id=vector["name"]) for vector in vectors]


@pytest.mark.parametrize("vector", named(VECTORS["forms"]))
def test_a_value_has_the_form_that_is_written_down(vector):
    value = read(vector["value"])

    assert canonical(value).hex() == vector["form"]
    assert twin.form(value).hex() == vector["form"]


@pytest.mark.parametrize("vector", named(VECTORS["calls"]))
def test_a_call_has_the_key_that_is_written_down(vector):
    arguments = {name: read(value) for name, value in vector["arguments"].items()}

    assert canonical(arguments).hex() == vector["form"]
    assert digest_named(arguments).decode() == vector["key"]
    assert twin.digest(arguments).decode() == vector["key"]


@pytest.mark.parametrize("vector", named(VECTORS["texts"]))
def test_a_long_key_has_the_digest_that_is_written_down(vector):
    assert digest_text(vector["text"]).decode() == vector["key"]


def test_the_example_in_the_text_is_right():
    example = {"order_id": "o-1", "template": "receipt"}

    assert f"key: {digest_named(example).decode()}\n" in (DOCS / "canonical.md").read_text("utf-8")


def test_the_vectors_have_every_tag_of_the_form():
    assert {bytes.fromhex(vector["form"])[0] for vector in VECTORS["forms"]} == set(b"nftijdqsblemawyczpu")
