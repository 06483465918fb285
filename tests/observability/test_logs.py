"""What a job logs says which job it was."""

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from fastq import Drop, FastQ, current_job
from fastq.logs import JobFields, JsonLines, TextLines
from tests.cli.conftest import Shop

log = logging.getLogger("shop")


@pytest.fixture
def app(url: str, namespace: str) -> Iterator[FastQ]:
    with FastQ(url, namespace=namespace, lease=2) as app:
        yield app


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """What all loggers write, by the formatter that the test names."""
    handler = logging.StreamHandler(stream := io.StringIO())
    handler.setFormatter(request.param())
    handler.addFilter(JobFields())
    root, before = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield stream
    root.removeHandler(handler)
    root.setLevel(before)


@pytest.mark.parametrize("stream", [JsonLines], indirect=True)
def test_a_json_line_of_a_job_has_its_fields_but_not_its_arguments(app: FastQ, stream: io.StringIO) -> None:
    uids = []

    @app.task(name="loop", queue="mail")
    async def on_the_loop(secret: str) -> None:
        uids.append(current_job().uid)
        log.info("on the loop")

    @app.task(name="thread")
    def in_a_thread(secret: str) -> None:
        log.warning("in a thread", extra={"task": "my own"})

    on_the_loop.using(job_id="event:7").enqueue("hush")
    in_a_thread.enqueue("hush")
    app.worker(burst=True).run()

    events = {event["message"]: event for event in map(json.loads, stream.getvalue().splitlines())}
    loop, thread = events["on the loop"], events["in a thread"]
    assert (loop["task"], loop["queue"], loop["attempt"], loop["job_id"]) == ("loop", "mail", 1, "event:7")
    assert [loop["uid"]] == uids
    assert (thread["task"], thread["queue"]) == ("my own", "default")
    assert "job_id" not in thread
    assert "hush" not in stream.getvalue()


@pytest.mark.parametrize("stream", [JsonLines], indirect=True)
def test_what_the_worker_says_of_a_job_has_its_fields_and_its_other_lines_have_none(app: FastQ, stream: io.StringIO) -> None:
    @app.task(name="fail", retries=0)
    async def fail(secret: str) -> None:
        raise OSError("no luck")

    @app.task(name="drop")
    async def drop() -> None:
        raise Drop("not wanted")

    failed, dropped = fail.enqueue("hush"), drop.enqueue()
    app.worker(burst=True).run()

    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert {(event["level"], event["task"], event["uid"]) for event in events if "uid" in event} == {
        ("error", "fail", failed.uid),
        ("info", "drop", dropped.uid),
    }
    assert [event for event in events if "has ended" in event["message"] and "uid" not in event]
    assert "hush" not in stream.getvalue()


def test_what_a_job_logs_in_a_process_of_its_own_has_its_fields_too(shop: Shop) -> None:
    shop.write("more", """
        import logging
        from shop import app

        @app.task(name="apart", executor="process")
        def apart() -> None:
            logging.getLogger("shop").warning("here")
    """)  # fmt: skip
    shop.do("import more; more.apart.enqueue()")

    with shop.fastq("worker", "shop", "--processes", "1", "--import", "more", "--burst", "--log-format", "json") as fleet:
        assert fleet.wait() == 0, fleet.stderr

    events = [json.loads(line) for line in fleet.stderr.splitlines()]
    [event] = [event for event in events if event["message"] == "here"]
    assert (event["task"], event["queue"], event["attempt"], len(event["uid"])) == ("apart", "default", 1, 36)


@pytest.mark.parametrize("stream", [TextLines], indirect=True)
def test_a_text_line_of_a_job_begins_with_what_it_is(app: FastQ, stream: io.StringIO) -> None:
    @app.task(name="send")
    async def send() -> None:
        log.info("sent")

    job = send.enqueue()
    app.worker(burst=True).run()
    log.info("afterwards")

    assert re.search(rf" shop: task=send uid={job.uid} attempt=1 sent$", stream.getvalue(), re.MULTILINE)
    assert stream.getvalue().endswith(" shop: afterwards\n")
