"""What operators look at on a large queue: it takes few calls, and none holds up the server.

The long form, with a million jobs: `pytest tests/cli/test_scale.py -m slow`.
"""

from collections.abc import Callable

import pytest

from fastq import FastQ, Unique
from fastq.broker import requests
from fastq.cli import diagnosis
from fastq.keys import queue_keys
from tests.support.builders import message
from tests.support.operate import operate
from tests.support.servers import Server

MOST = 0.020  # seconds of a call
MOST_CALLS = 1000  # those inside scripts too; of 50,000 jobs and more
COMMANDS = ("queues --json", "locks list --json", "dead list --json", "scheduled list --json", "workers --json")


@pytest.mark.parametrize("jobs", [50_000, pytest.param(1_000_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_a_large_queue_is_looked_at_by_few_calls_of_which_none_takes_long(
    jobs: int, start_server: Callable[..., Server]
) -> None:
    server = start_server(config={"slowlog-log-slower-than": round(MOST * 1e6), "slowlog-max-len": 1000})
    client = server.client()
    with FastQ(server.url, namespace="big") as app:
        app.enqueue_many((app.using(queue="default").prepare("t", n) for n in range(jobs)), handles=False)
        unique = app.using(unique=Unique(ttl=3600))
        app.enqueue_many((unique.prepare("u", n=n) for n in range(jobs // 10)), handles=False)
        keys = queue_keys("big", "default")
        for first in range(0, jobs // 10, 1000):
            dead = {raw[10:26]: raw for raw in (message(f"d{n}") for n in range(first, first + 1000))}
            client.zadd(keys.dead, dict.fromkeys(dead, 1000 + first))
            client.hset(keys.jobs, mapping=dead)
        # As much in hand as many workers take: more than is looked into.
        app.broker.call(requests.join(keys, b"w"))
        for _ in range(4):
            app.broker.call(requests.fetch(keys, b"w", entries=100, suspects=False))
        client.slowlog_reset()
        client.config_resetstat()

        there = ["--url", server.url, "--namespace", "big"]
        answers = operate(*([*line.split(), *there] for line in COMMANDS))
        calls = sum(row["calls"] for row in client.info("commandstats").values())
        recounted = app.broker.run(diagnosis._difference(keys))

    assert [answer.code for answer in answers] == [0] * len(COMMANDS)
    counts = answers[0].json["queues"][0]
    assert (counts["dead"], counts["waiting"]) == (jobs // 10, jobs + jobs // 10)
    assert answers[2].json["total"] == jobs // 10
    assert len(answers[1].json["locks"]) >= 50
    assert recounted < 0, "what was fetched by hand is still in the counter"
    assert calls < MOST_CALLS
    assert [(entry["duration"], entry["command"][-90:]) for entry in client.slowlog_get(100)] == []
    client.close()
