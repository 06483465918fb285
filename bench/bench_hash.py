"""The canonical hash of a call, beside C that does comparable work."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from bench.samples import CALL, HASH_INPUT, NESTED
from bench.tasks import noop
from fastq.codec import Signature


def test_reference(benchmark: Any) -> None:
    """hashlib's BLAKE2b of 60 bytes: the pace of this machine, by which compare.py divides all others."""
    benchmark(lambda: blake2b(HASH_INPUT, digest_size=24).digest())


def test_hash_a_call(benchmark: Any) -> None:
    digest = noop.signature.canonical.digest
    benchmark(lambda: digest(CALL, {}))


def test_hash_a_call_by_keywords(benchmark: Any) -> None:
    digest = noop.signature.canonical.digest
    number, text = CALL
    keywords: dict[str, object] = {"text": text, "number": number}
    benchmark(lambda: digest((), keywords))


def test_hash_a_nested_call(benchmark: Any) -> None:
    digest = Signature([("order", "positional_or_keyword", Signature.REQUIRED)]).digest
    benchmark(lambda: digest((NESTED,), {}))


def test_encode_the_nested_value_with_msgspec(benchmark: Any) -> None:
    encode = msgspec.msgpack.Encoder().encode
    benchmark(lambda: encode(NESTED))
