"""Retry policies: when the next attempt is, and when there is none."""

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq.errors import ConfigError
from fastq.retry import Backoff, Drop, Retry, retries_as_sent, retries_to_send, retry_policy

FAILURE = OSError("no route to host")


def test_each_delay_is_the_factor_times_the_one_before():
    policy = Backoff(retries=4, delay=2, factor=3, jitter=0, max_delay=1000)

    assert [policy.next_delay(attempt, FAILURE) for attempt in (1, 2, 3, 4)] == [2, 6, 18, 54]


def test_after_the_last_retry_there_is_none():
    assert Backoff(retries=2).next_delay(3, FAILURE) is None
    assert Backoff(retries=0).next_delay(1, FAILURE) is None


def test_no_delay_is_longer_than_max_delay():
    assert Backoff(retries=50, delay=10, max_delay=timedelta(minutes=1), jitter=0).next_delay(50, FAILURE) == 60


def test_jitter_spreads_delays_around_the_nominal_one():
    policy = Backoff(delay=100, jitter=0.1)

    delays = {policy.next_delay(1, FAILURE) for _ in range(200)}

    assert len(delays) > 100
    assert all(90 <= delay <= 110 for delay in delays)


@given(
    attempt=st.integers(1, 65_534),
    delay=st.sampled_from([0, 1, 5, 1e6, 3e9]),
    factor=st.sampled_from([1, 1.5, 2, 1e6]),
    jitter=st.sampled_from([0, 0.5, 1]),
    max_delay=st.sampled_from([0, 600, 3e9]),
)
def test_at_any_attempt_the_delay_is_finite_and_within_bounds(attempt, delay, factor, jitter, max_delay):
    policy = Backoff(65_534, delay, factor, jitter, max_delay)

    found = policy.next_delay(attempt, FAILURE)

    assert found is not None
    assert math.isfinite(found)
    assert 0 <= found <= max_delay


@given(retries=st.integers(0, 200), delay=st.sampled_from([0, 0.5, 7, 900]), factor=st.sampled_from([1, 1.01, 2]))
def test_the_longest_delays_together_are_what_they_add_up_to(retries, delay, factor):
    nominal = Backoff(200, delay, factor, jitter=0, max_delay=3e9)

    expected = sum(min(nominal.next_delay(attempt, FAILURE) * 1.1, 600) for attempt in range(1, retries + 1))

    assert Backoff(retries, delay, factor, jitter=0.1).longest_delays() == pytest.approx(expected)


def test_only_errors_of_the_kinds_in_on_are_retried():
    policy = Backoff(on=(OSError,))

    assert policy.next_delay(1, ConnectionError()) is not None
    assert policy.next_delay(1, ValueError()) is None


def test_errors_of_the_kinds_in_giveup_are_not_retried():
    policy = Backoff(on=OSError, giveup=(ConnectionError,))

    assert policy.next_delay(1, OSError()) is not None
    assert policy.next_delay(1, ConnectionResetError()) is None


def test_a_task_that_raises_retry_is_retried_whatever_the_filters_say_until_attempts_run_out():
    policy = Backoff(retries=1, on=(OSError,), giveup=(Exception,))

    assert policy.next_delay(1, Retry()) is not None
    assert policy.next_delay(2, Retry()) is None


@pytest.mark.parametrize(
    "options",
    [
        {"retries": -1},
        {"retries": 65_535},
        {"retries": True},
        {"delay": -1},
        {"delay": float("nan")},
        {"factor": 0.5},
        {"factor": float("nan")},
        {"factor": "2"},
        {"jitter": 1.5},
        {"jitter": -0.1},
        {"max_delay": "1 h"},
        {"on": (OSError, "ValueError")},
        {"giveup": (int,)},
    ],
)
def test_a_backoff_that_cannot_work_is_refused_where_it_is_written(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        Backoff(**options)


def test_retries_may_be_a_number_a_backoff_or_a_function():
    own = Backoff(retries=7)

    assert retry_policy(5).next_delay(5, FAILURE) is not None
    assert retry_policy(5).next_delay(6, FAILURE) is None
    assert retry_policy(own) is own
    assert retry_policy(lambda attempt, error: attempt * 2).next_delay(4, FAILURE) == 8.0
    assert retry_policy(lambda attempt, error: None).next_delay(1, FAILURE) is None
    assert retry_policy(lambda attempt, error: timedelta(seconds=3)).next_delay(1, FAILURE) == 3.0


@pytest.mark.parametrize("retries", [None, "3", 1.5, (1, 2)])
def test_anything_else_is_refused(retries):
    with pytest.raises(ConfigError, match="retries="):
        retry_policy(retries)


@pytest.mark.parametrize("answer", [-1, float("nan"), float("inf"), "soon", True])
def test_a_function_whose_answer_is_no_duration_is_an_error_not_a_delay(answer):
    with pytest.raises(ConfigError, match="retry function"):
        retry_policy(lambda attempt, error: answer).next_delay(1, FAILURE)


def test_an_override_of_the_number_keeps_the_delays_of_the_tasks_own_policy():
    policy = retries_as_sent(retries_to_send(1), Backoff(retries=9, delay=7, jitter=0, on=(OSError,)))

    assert policy.next_delay(1, FAILURE) == 7
    assert policy.next_delay(2, FAILURE) is None
    assert policy.next_delay(1, ValueError()) is None


def test_an_override_by_a_backoff_travels_as_plain_data_and_replaces_the_policy():
    sent = retries_to_send(Backoff(retries=2, delay=30, jitter=0))
    policy = retries_as_sent(sent, Backoff(retries=9, delay=7))

    assert isinstance(sent, dict)
    assert [policy.next_delay(attempt, FAILURE) for attempt in (1, 2, 3)] == [30, 60, None]


@pytest.mark.parametrize("retries", [lambda attempt, error: 1, Backoff(on=(OSError,)), Backoff(giveup=(OSError,))])
def test_an_override_that_cannot_travel_is_refused(retries):
    with pytest.raises(ConfigError, match="travels with the job"):
        retries_to_send(retries)


@pytest.mark.parametrize("sent", [-1, "3", None, {"retries": -1}, {"tries": 3}])
def test_an_override_that_cannot_be_read_is_an_error(sent):
    with pytest.raises(ConfigError):
        retries_as_sent(sent, Backoff())


def test_the_signals_say_what_they_ask_for():
    assert Retry().delay is None
    assert Retry(timedelta(minutes=1)).delay == 60.0
    assert str(Drop("sold out")) == "sold out"
    with pytest.raises(ConfigError):
        Retry(-1)
