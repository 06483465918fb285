"""Calls to bytes and back, without a server."""

from __future__ import annotations

from itertools import repeat
from typing import Any

import pytest

from bench.figures.codec import JOBS, NOW_MS, frame
from bench.samples import CALL, NESTED
from bench.tasks import noop
from fastq.codec import Frame, Packer, Template, new_uid


@pytest.mark.parametrize("size", [50, 1000, 64_000])
def test_encode_one(benchmark: Any, size: int) -> None:
    benchmark(noop.route.template.encode, (4711, "x" * size), {}, new_uid(NOW_MS), NOW_MS)


def test_encode_nested(benchmark: Any) -> None:
    benchmark(Template("bench.nested").encode, (NESTED,), {}, new_uid(NOW_MS), NOW_MS)


def test_pack_a_frame(benchmark: Any) -> None:
    packer, template = Packer(), noop.route.template
    benchmark(lambda: packer.pack(template, repeat(CALL, JOBS), NOW_MS, JOBS, 1 << 20))
    benchmark.extra_info["jobs"] = JOBS


def test_split_a_frame(benchmark: Any) -> None:
    benchmark(Frame, frame())
    benchmark.extra_info["jobs"] = JOBS


def test_decode_the_arguments(benchmark: Any) -> None:
    benchmark(noop.decoder.decode, Frame(frame())[0].payload)


def test_make_a_uid(benchmark: Any) -> None:
    benchmark(new_uid, NOW_MS)
