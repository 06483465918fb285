"""Field cases C52 and C54: arguments arrive as they were on every path; bytes that are no text do no harm.

C53 is in tests/worker.
"""

import time
from typing import Any

import pytest

from fastq import FastQ, FastQError, PayloadError
from fastq.errors import ConfigError
from tests.cases.site import Site
from tests.support.process import wait_until

VALUES: list[Any] = [
    [], {}, [[]], {"a": []}, [{}], 130775545883395173, 2**63 - 1, -(2**63), 2**64 - 1, 1e308, 0.1, -0.0, "", "\0", None, True,
    False, b"", b"\x9c\xff", "\N{SNOWMAN}\U0001f600\u202eabc", ["a", 1, None], {"k": {"k": [1.5, b"\0"]}}, 0, -1, "1", 1.0,
]  # fmt: skip


def test_c52_arguments_arrive_as_they_were_on_every_path(site: Site) -> None:
    """At once, in bulk, delayed, retried, given back, reclaimed from a dead worker."""
    site.ready(*(site.start_worker(concurrency=5) for _ in range(2)))
    for number, value in enumerate(VALUES):
        site.enqueue(site.tasks.expect, f"once-{number}", value, repr(value))
        site.enqueue(site.tasks.expect.using(delay=0.2), f"delayed-{number}", value, repr(value))
        site.enqueue(site.tasks.expect, f"retried-{number}", value, repr(value), failures=1)
    bulk = {f"bulk-{number}": value for number, value in enumerate(VALUES)}
    site.tasks.expect.enqueue_many([(label, value, repr(value)) for label, value in bulk.items()])
    site.accepted |= bulk.keys()
    site.wait_started("once-0")
    site.workers[0].kill()
    site.start_worker()

    site.assert_laws(may_repeat=site.accepted)
    assert site.stats().get("dropped", 0) == 0


@pytest.mark.parametrize(
    "value", ["\ud800", 2**64, {"k": object()}, {1: {2, 3}}], ids=["lone surrogate", "2**64", "object", "set"]
)
def test_c52_what_cannot_be_encoded_is_refused_where_it_is_enqueued(site: Site, value: object) -> None:
    with pytest.raises(PayloadError, match="value"):
        site.tasks.expect.enqueue("refused", value, "")
    assert site.client.xlen(site.keys.stream) == 0


@pytest.mark.parametrize("name", ["two words", "a:b", "{a}", "*", "a\nb", "", "x" * 200], ids=repr)
def test_c54_names_that_do_not_fit_a_key_are_refused(site: Site, name: str) -> None:
    """Names of queues and namespaces; a task's may have ":" and "/" too. Keys and ids may be anything."""
    with pytest.raises(ConfigError):
        site.tasks.work.using(queue=name)
    with pytest.raises(ConfigError):
        FastQ(namespace=name)
    if name != "a:b":
        with pytest.raises(FastQError):
            site.app.task(lambda: None, name=name)


def test_c54_keys_and_ids_may_be_any_text(site: Site) -> None:
    site.worker()
    for number, text in enumerate(["two words", "a:b", "{a}", "*", "a b\u202ec", "\N{SNOWMAN}" * 60]):
        site.enqueue(site.tasks.unique.using(job_id=text), f"{text}/{number}")
    site.assert_laws()


def test_c54_a_client_that_decodes_is_no_trouble(site: Site) -> None:
    """What redis_options say about decoding is ignored: payloads are bytes."""
    worker = site.worker(app={"redis_options": {"decode_responses": True}})
    with FastQ(site.server.url, namespace=site.namespace, redis_options={"decode_responses": True}) as app:
        app.enqueue("expect", label="bytes", value=b"\x9c\xff", shown=repr(b"\x9c\xff"))
    site.accepted.add("bytes")
    site.wait_ended("bytes")
    assert worker.returncode is None
    site.assert_laws()


def test_c54_garbage_in_the_stream_goes_dead_once_and_stops_nothing(site: Site) -> None:
    """With the field of a frame and without; what follows it runs."""
    site.worker()
    for fields in ({"f": b"\x9c\xff garbage"}, {"f": b""}, {"something": "else"}, {"f": b"\xff" * 5000}):
        site.client.xadd(site.keys.stream, fields)
    site.enqueue(site.tasks.work, "behind")
    site.wait_ended("behind")

    wait_until(lambda: len(site.dead_reasons()) >= 2)
    time.sleep(0.5)
    reasons = site.dead_reasons()
    assert all("cannot be read" in why for why in reasons)
    assert 2 <= len(reasons) <= 3
    assert len(site.log_lines("ERROR .*cannot be read as a message")) == len(reasons)
    wait_until(lambda: site.client.xlen(site.keys.stream) == 0)
