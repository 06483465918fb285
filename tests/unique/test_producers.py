"""Uniqueness under contention: 64 producers, one winner for each call."""

import json

import pytest
import redis as redis_py

from tests.support.process import script
from tests.support.queues import locks, waiting
from tests.unique.producers import CALLS

RUN = """
import json
from tests.unique.producers import enqueue_at_once
print("got in", json.dumps(enqueue_at_once(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
"""


@pytest.mark.parametrize(
    "rounds", [2, pytest.param(50, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])], ids=["short", "long"]
)
def test_64_producers_enqueue_the_same_1000_calls_at_once_and_each_is_one_job(
    url: str, namespace: str, redis: redis_py.Redis, rounds: int
) -> None:
    with script(RUN, url, namespace, str(rounds)) as child:
        got_in = json.loads(child.wait_line("got in (.*)", timeout=60 + 30 * rounds)[1])

    assert got_in == [CALLS] * rounds
    jobs = waiting(redis, namespace)
    assert len(jobs) == CALLS * rounds + 1
    assert locks(redis, namespace) == {message.lock_key: message.uid for message in jobs}
