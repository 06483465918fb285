"""A shop that reconciles its accounts with "rerun" while workers are killed (shop.py)."""

from pathlib import Path

import pytest
import redis as redis_py

from tests.unique.shop import run


@pytest.mark.parametrize(
    "seconds", [2, pytest.param(60, marks=[pytest.mark.soak, pytest.mark.timeout(300)])], ids=["short", "long"]
)
def test_no_runs_overlap_and_the_last_change_is_seen_while_workers_are_killed(
    url: str, namespace: str, redis: redis_py.Redis, tmp_path: Path, seconds: float
) -> None:
    verdict = run(url, namespace, tmp_path, redis, seconds=seconds)

    print(verdict)
    assert verdict.killed
    assert verdict.good, verdict
