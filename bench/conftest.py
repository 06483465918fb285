"""The suites for pytest-benchmark: `pytest bench --benchmark-only`. See docs/benchmarks.md."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

if str(Path(__file__).parents[1]) not in sys.path:
    sys.path.append(str(Path(__file__).parents[1]))  # at the end, where it shadows no installed package

from bench import environment
from bench.clock import Clock, Timer
from bench.stage import Stage

SCALE = float(os.environ.get("FASTQ_BENCH_SCALE", "0.25"))


def pytest_configure(config: pytest.Config) -> None:
    environment.refuse_unfit_builds()


def pytest_report_header(config: pytest.Config) -> list[str]:
    return environment.lines()


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, object]) -> None:
    machine_info["fastq"] = environment.describe()


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    """A private server for the session; loads are at $FASTQ_BENCH_SCALE of those of bench/accept.py."""
    with Stage(SCALE) as stage:
        yield stage


@pytest.fixture(autouse=True)
def _as_new(request: pytest.FixtureRequest) -> None:
    if "stage" in request.fixturenames:
        stage = request.getfixturevalue("stage")
        stage.new_round()
        stage.clear()


@pytest.fixture
def timer(request: pytest.FixtureRequest) -> Timer:
    """The timer of this benchmark; made before `benchmark`, which looks for it in the marker."""
    timer = Timer()
    request.node.add_marker(pytest.mark.benchmark(timer=timer))
    return timer


@pytest.fixture
def clock(timer: Timer, benchmark: Any) -> Clock:
    """Benchmarks what was measured elsewhere."""
    return Clock(timer, benchmark)
