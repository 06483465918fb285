"""What can be declared: every combination of policies that makes sense is taken, every other one refused with its reason."""

import itertools
from typing import Any, get_args

import pytest

from fastq import Backoff, FastQ, Unique, UniqueConfigError
from fastq.codec import Message
from fastq.unique import OnConflict, Until
from tests.unique.world import POLICIES

ALL = list(itertools.product(get_args(Until), get_args(OnConflict), (False, True)))
REFUSED = [policy for policy in ALL if policy not in POLICIES]


@pytest.fixture
def app() -> FastQ:
    return FastQ("redis://127.0.0.1:1/0")  # nobody listens there: nothing here touches Redis


@pytest.mark.parametrize(("until", "on_conflict", "renew"), POLICIES)
def test_every_combination_that_makes_sense_is_taken_and_travels_with_the_job(
    app: FastQ, until: Any, on_conflict: Any, renew: bool
) -> None:
    task: Any = app.task(name="t", unique=Unique(60, "key", until, on_conflict, renew))(lambda key: None)

    message = Message(task.route.encode(("k",), {}, 1_700_000_000_000).message)

    bits = list(get_args(Until)).index(until) | 4 * renew | list(get_args(OnConflict)).index(on_conflict) << 3
    assert (message.policy, message.lock_ttl_ms) == (bits, 60_000)


@pytest.mark.parametrize(("until", "on_conflict", "renew"), REFUSED)
def test_every_other_combination_is_refused_with_its_reason(until: Any, on_conflict: Any, renew: bool) -> None:
    with pytest.raises(UniqueConfigError, match=f'with until="{until}"') as caught:
        Unique(60, until=until, on_conflict=on_conflict, renew=renew)

    assert "renew" in str(caught.value) or on_conflict in str(caught.value)


@pytest.mark.parametrize("on_conflict", ["raise", "skip", "rerun"])
def test_max_wait_is_refused_without_replace(on_conflict: Any) -> None:
    with pytest.raises(UniqueConfigError, match='max_wait is for on_conflict="replace" only'):
        Unique(60, on_conflict=on_conflict, max_wait=5)
    assert Unique(60, on_conflict="replace", max_wait=5).max_wait == 5


@pytest.mark.parametrize("on_conflict", ["skip", "replace", "rerun"])
def test_a_job_id_together_with_a_call_that_could_end_in_another_job_is_refused(app: FastQ, on_conflict: Any) -> None:
    unique = Unique(60, "key", on_conflict=on_conflict)
    task: Any = app.task(name="t", unique=unique)(lambda key: None)

    with pytest.raises(UniqueConfigError, match="job_id together with"):
        task.using(job_id="i")
    with pytest.raises(UniqueConfigError, match="job_id together with"):
        task.using(unique=None).using(job_id="i", unique=unique)
    task.using(job_id="i", unique=Unique(60, "key"))


@pytest.mark.parametrize(
    ("ttl", "reason"),
    [(None, "needs a ttl"), (0.999, "1"), (0, "1"), (-5, "1"), ("60", "ttl"), (float("nan"), "ttl"), (True, "ttl")],
)
def test_a_ttl_is_required_and_lasts_a_second_at_least(ttl: Any, reason: str) -> None:
    with pytest.raises(UniqueConfigError, match=reason) as caught:
        Unique(ttl) if ttl is not None else Unique()

    assert isinstance(caught.value, ValueError)


def test_a_lock_that_may_end_before_its_job_is_warned_of_at_registration(app: FastQ, caplog: pytest.LogCaptureFixture) -> None:
    retries = Backoff(2, delay=10, factor=1, jitter=0)  # 3 attempts of 60 s, and 2 delays of 10

    def told(**options: Any) -> list[str]:
        caplog.clear()
        with caplog.at_level("WARNING", "fastq"):
            app.task(name=f"t{len(app.tasks)}", retries=retries, timeout=60, **options)(lambda key: None)
        return [record.getMessage() for record in caplog.records]

    assert told(unique=Unique(201, "key")) == []
    assert told(unique=Unique(199, "key", renew=True)) == []
    [warning] = told(unique=Unique(199, "key"))
    assert "200 s" in warning
    assert "renew=True" in warning
    [warning] = told(unique=Unique(600, Unique.TASK))
    assert "at most one job of the whole task" in warning


def test_a_key_function_that_gives_nothing_makes_one_lock_for_the_task_and_warns_once(
    app: FastQ, caplog: pytest.LogCaptureFixture
) -> None:
    task: Any = app.task(name="t", unique=Unique(3600 * 24, lambda key: key or None))(lambda key: None)
    caplog.clear()

    with caplog.at_level("WARNING", "fastq"):
        keys = {task.route.key_of((key,), {}) for key in ("", None, "")}

    assert keys == {b"t:#task"}
    assert len(caplog.records) == 1
