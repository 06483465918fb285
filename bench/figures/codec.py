"""Messages and frames, beside a hash in C: the pace of the machine."""

from __future__ import annotations

from itertools import repeat

from bench.figure import Figure
from bench.figures.hashing import blake2b_60
from bench.figures.timing import nanoseconds
from bench.samples import CALL
from bench.stage import Stage
from bench.tasks import noop
from fastq.codec import Frame, Packer, new_uid

NOW_MS = 1_700_000_000_000
JOBS = 64  # a full frame


def frame() -> bytes:
    """A full frame of the usual jobs."""
    [(data, _)] = Packer().pack(noop.route.template, repeat(CALL, JOBS), NOW_MS, JOBS, 1 << 20).frames
    return data


def _encode(stage: Stage) -> float:
    encode = noop.route.template.encode
    return nanoseconds("encode(args, {}, new_uid(now), now)", encode=encode, args=CALL, now=NOW_MS, new_uid=new_uid)


def _pack(stage: Stage) -> float:
    pack, template = Packer().pack, noop.route.template
    statement = "pack(template, repeat(args, jobs), now, jobs, 1 << 20)"
    return nanoseconds(statement, pack=pack, template=template, repeat=repeat, args=CALL, jobs=JOBS, now=NOW_MS) / JOBS


def _split(stage: Stage) -> float:
    return nanoseconds("Frame(data)", Frame=Frame, data=frame()) / JOBS


def _decode(stage: Stage) -> float:
    payload = Frame(frame())[0].payload
    return nanoseconds("decode(payload)", decode=noop.decoder.decode, payload=payload)


FIGURES = [
    Figure("encode one", "ns", _encode, blake2b_60, less_is_better=True),
    Figure("encode in bulk", "ns/job", _pack, blake2b_60, less_is_better=True),
    Figure("split a frame", "ns/job", _split, blake2b_60, less_is_better=True),
    Figure("decode arguments", "ns", _decode, blake2b_60, less_is_better=True),
]
