"""The canonical hash of a call, beside hashes and encoders in C."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from bench.figure import Figure
from bench.figures.timing import nanoseconds
from bench.samples import CALL, HASH_INPUT, NESTED
from bench.stage import Stage
from bench.tasks import noop
from fastq.codec import Signature


def blake2b_60(stage: Stage) -> float:
    """Nanoseconds that hashlib takes for 60 bytes: the pace of this machine's C."""
    # Anew for each figure, so that both see the machine as it is just then.
    return nanoseconds("hash(data, digest_size=24).digest()", hash=blake2b, data=HASH_INPUT)


def _digest(stage: Stage) -> float:
    return nanoseconds("digest(args, {})", digest=noop.signature.canonical.digest, args=CALL)


def _digest_nested(stage: Stage) -> float:
    digest = Signature([("order", "positional_or_keyword", Signature.REQUIRED)]).digest
    return nanoseconds("digest(args, {})", digest=digest, args=(NESTED,))


def _encode_nested(stage: Stage) -> float:
    return nanoseconds("encode(value)", encode=msgspec.msgpack.Encoder().encode, value=NESTED)


FIGURES = [
    Figure("hash", "ns", _digest, blake2b_60, less_is_better=True, bounds={4: 2.5}),
    Figure("hash nested", "ns", _digest_nested, _encode_nested, less_is_better=True, bounds={4: 5.0}),
]
