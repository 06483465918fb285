"""A job's trace: from where it is enqueued to where it runs, in another process."""

import json
import signal
import textwrap

from tests.cli.conftest import Shop
from tests.support.process import wait_until

# Each process writes its spans into a file of its own, one a line.
TRACED = """
    import json, os
    from pathlib import Path
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
    from fastq import Drop, FastQ
    from fastq.telemetry import OpenTelemetry

    class Files(SpanExporter):
        def export(self, spans):
            with open(f"spans-{os.getpid()}", "a") as file:
                for span in spans:
                    parent = span.parent.span_id if span.parent else None
                    file.write(json.dumps({
                        "name": span.name, "trace": span.context.trace_id, "id": span.context.span_id, "parent": parent,
                        "kind": span.kind.name, "status": span.status.status_code.name, "pid": os.getpid(),
                        "start": span.start_time, "end": span.end_time, "attributes": dict(span.attributes),
                        "events": [event.name for event in span.events],
                    }) + "\\n")
            return SpanExportResult.SUCCESS

    trace.set_tracer_provider(TracerProvider())
    trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(Files()))
    app = FastQ(namespace=os.environ["SHOP"])
    app.middleware(OpenTelemetry())

    @app.task(name="send")
    async def send(number: int) -> None:
        with trace.get_tracer("shop").start_as_current_span("inside"):
            pass

    @app.task(name="thread")
    def thread(number: int) -> None:
        with trace.get_tracer("shop").start_as_current_span("inside"):
            pass

    @app.task(name="fail", retries=1)
    async def fail(number: int) -> None:
        if number:
            raise Drop("not wanted")
        raise OSError("no luck")
"""


def spans(shop: Shop) -> list[dict]:
    lines = [line for path in shop.folder.glob("spans-*") for line in path.read_text().splitlines(keepends=True)]
    return sorted((json.loads(line) for line in lines if line.endswith("\n")), key=lambda span: span["start"])


def traced(shop: Shop, code: str, count: int) -> list[dict]:
    """The spans of what `code` enqueues, when there are `count`."""
    shop.write("shop", TRACED)
    shop.do(textwrap.dedent(code))
    with shop.fastq("worker", "shop", "--processes", "1") as fleet:
        wait_until(lambda: len(spans(shop)) >= count)
        fleet.send(signal.SIGTERM)
        assert fleet.wait() == 0, fleet.stderr
    return spans(shop)


def test_enqueue_wait_and_run_are_one_trace_over_two_processes(shop: Shop) -> None:
    found = traced(shop, """
        with shop.trace.get_tracer("shop").start_as_current_span("request"):
            job = shop.send.enqueue(1)
        shop.Path("uid").write_text(job.uid)
    """, 5)  # fmt: skip

    by_name = {span["name"]: span for span in found}
    assert len(found) == len(by_name) == 5
    request, enqueue, wait = by_name["request"], by_name["enqueue send"], by_name["wait send"]
    run, inside = by_name["run send"], by_name["inside"]
    assert {span["trace"] for span in found} == {request["trace"]}
    assert (request["parent"], enqueue["parent"]) == (None, request["id"])
    assert (wait["parent"], run["parent"], inside["parent"]) == (enqueue["id"], enqueue["id"], run["id"])
    assert (enqueue["kind"], run["kind"], run["status"]) == ("PRODUCER", "CONSUMER", "UNSET")
    assert enqueue["pid"] == request["pid"] != run["pid"] == wait["pid"]
    assert wait["start"] < wait["end"] <= run["start"]
    assert run["attributes"]["messaging.message.id"] == (shop.folder / "uid").read_text()
    assert run["attributes"]["messaging.destination.name"] == "default"


def test_spans_of_a_task_in_a_thread_are_under_its_run(shop: Shop) -> None:
    found = traced(shop, "shop.thread.enqueue(1)", 4)

    by_name = {span["name"]: span for span in found}
    assert by_name["inside"]["parent"] == by_name["run thread"]["id"]


def test_each_attempt_has_its_span_in_the_same_trace_and_says_how_it_ended(shop: Shop) -> None:
    source = TRACED.replace("retries=1", "retries=lambda attempt, error: 0 if attempt == 1 else None")
    assert source != TRACED
    shop.write("shop", source)
    shop.do("shop.fail.enqueue(0); shop.fail.enqueue(1)")
    with shop.fastq("worker", "shop", "--processes", "1") as fleet:
        wait_until(lambda: len(spans(shop)) == 7)
        fleet.send(signal.SIGTERM)
        assert fleet.wait() == 0, fleet.stderr

    found = spans(shop)
    failing, dropped = [span["trace"] for span in found if span["name"] == "enqueue fail"]
    runs = [span for span in found if span["name"] == "run fail" and span["trace"] == failing]
    assert [(run["attributes"]["fastq.attempt"], run["status"], run["events"]) for run in runs] == [
        (1, "ERROR", ["exception"]),
        (2, "ERROR", ["exception"]),
    ]
    [run] = [span for span in found if span["name"] == "run fail" and span["trace"] == dropped]
    assert (run["status"], run["attributes"]["fastq.outcome"]) == ("UNSET", "dropped")
