"""What a fleet tells of itself over HTTP: counts that are right over many processes, and whether it is well."""

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fastq.metrics import Boards
from fastq.worker.board import Board
from fastq.worker.meter import BOUNDS, COUNT
from fastq_ext.histogram import Histogram
from tests.cli.conftest import Shop
from tests.support.process import Child, wait_until
from tests.support.servers import Server

MORE = """
    from fastq import Retry
    from shop import app

    @app.task(name="shop.fail", retries=1, queue="mail")
    async def fail(number: int) -> None:
        raise Retry(delay=0)
"""

LABELS = ("queue", "task", "outcome", "state", "event", "le")
Sample = tuple[str, tuple[str, ...]]
Measured = Callable[..., tuple[Child, int]]


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as answer:
        return answer.code, answer.read().decode()
    except ConnectionError:
        return 0, ""


def scrape(port: int) -> dict[Sample, float]:
    """The samples of a scrape: (name, values of the labels in the order of LABELS) -> value."""
    families = text_string_to_metric_families(get(port, "/metrics")[1])
    samples = [sample for family in families for sample in family.samples]
    return {(one.name, tuple(one.labels[name] for name in LABELS if name in one.labels)): one.value for one in samples}


def port_of(fleet: Child) -> int:
    return int(fleet.wait_line(r"metrics are at \S+:(\d+)/metrics")[1])


@pytest.fixture
def measured(shop: Shop) -> Measured:
    """Starts a fleet that serves its metrics, and waits until it is ready."""

    def start(*options: str) -> tuple[Child, int]:
        fleet = shop.fastq("worker", "shop", "--metrics-port", "0", *options)
        port = port_of(fleet)
        wait_until(lambda: get(port, "/readyz")[0] == 200)
        return fleet, port

    return start


def test_what_prometheus_reads_equals_the_ledger_over_two_processes(shop: Shop, measured: Measured) -> None:
    shop.write("more", MORE)
    shop.do("shop.plain.enqueue_many([(i,) for i in range(300)]); shop.mail.enqueue_many([(i,) for i in range(50)])")
    shop.do("import more; more.fail.enqueue_many([(i,) for i in range(3)])")

    fleet, port = measured("--processes", "2", "--import", "more")
    with fleet:
        wait_until(lambda: len(shop.ledger.read().ends) == 350)
        wait_until(lambda: scrape(port).get(("fastq_jobs_total", ("mail", "shop.fail", "dead"))) == 3)
        wait_until(lambda: scrape(port).get(("fastq_jobs_total", ("default", "shop.plain", "succeeded"))) == 300)
        wait_until(lambda: scrape(port)["fastq_processes", ()] == 2)
        found = scrape(port)
        fleet.send(signal.SIGTERM)
        assert fleet.wait() == 0, fleet.stderr

    assert found["fastq_jobs_total", ("mail", "shop.mail", "succeeded")] == 50
    assert found["fastq_failed_attempts_total", ("mail", "shop.fail")] == 6
    for name in ("fastq_wait_seconds_count", "fastq_run_seconds_count"):
        assert found[name, ("default", "shop.plain")] == 300
    assert found["fastq_wait_seconds_count", ("mail", "shop.fail")] == 3  # first attempts alone
    assert found["fastq_run_seconds_count", ("mail", "shop.fail")] == 6
    assert 0 < found["fastq_wait_seconds_sum", ("default", "shop.plain")] < 300 * 60
    assert found["fastq_processes", ()] == 2
    assert found["fastq_slots", ()] == 200
    assert found["fastq_server_up", ()] == 1
    assert found["fastq_queue_jobs", ("mail", "dead")] == 3
    assert found["fastq_queue_events_total", ("default", "enqueued")] == 300


def test_counts_of_a_killed_process_stay_and_never_go_back(shop: Shop, measured: Measured) -> None:
    succeeded = ("fastq_jobs_total", ("default", "shop.plain", "succeeded"))
    fleet, port = measured("--processes", "1", "--preload")
    with fleet:
        shop.do("shop.plain.enqueue_many([(i,) for i in range(100)])")
        wait_until(lambda: scrape(port).get(succeeded) == 100)
        os.kill(shop.ledger.read().runs[0].pid, signal.SIGKILL)
        shop.do("shop.plain.enqueue_many([(i,) for i in range(100, 110)])")
        seen = [100.0]
        wait_until(lambda: seen.append(scrape(port)[succeeded]) or seen[-1] == 110)
        fleet.send(signal.SIGTERM)
        assert fleet.wait() == 0, fleet.stderr

    assert seen == sorted(seen)
    assert len({run.pid for run in shop.ledger.read().runs}) == 2


def test_a_fleet_whose_server_is_gone_is_alive_but_not_ready(own_server: Server, shop: Shop) -> None:
    shop.env["FASTQ_URL"] = own_server.url
    source = (shop.folder / "shop.py").read_text()
    (shop.folder / "shop.py").write_text(source.replace('os.environ["SHOP"])', 'os.environ["SHOP"], lease=1)'))
    with shop.fastq("worker", "shop", "--processes", "1", "--metrics-port", "0") as fleet:
        port = port_of(fleet)
        wait_until(lambda: get(port, "/readyz") == (200, "ready\n"))
        own_server.close()
        wait_until(lambda: get(port, "/readyz") == (503, "the heartbeats of 1 of 1 worker processes are late\n"))
        assert get(port, "/healthz") == (200, "alive\n")
        assert scrape(port)["fastq_server_up", ()] == 0
        fleet.send(signal.SIGTERM)
        fleet.wait()


def test_a_port_that_is_taken_is_a_clear_error(shop: Shop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with shop.fastq("worker", "shop", "--processes", "1", "--metrics-port", port) as fleet:
            assert fleet.wait() == 2

    assert f"--metrics-port {port}: " in fleet.stderr
    assert "Address already in use" in fleet.stderr


def test_a_path_that_is_none_is_answered_with_those_there_are(measured: Measured) -> None:
    fleet, port = measured("--processes", "1")
    with fleet:
        assert get(port, "/") == (404, "there are /metrics, /healthz and /readyz\n")
        fleet.send(signal.SIGTERM)
        assert fleet.wait() == 0, fleet.stderr


def test_boards_grow_and_are_summed_and_outlive_their_writers(tmp_path: Path) -> None:
    boards = Boards(tmp_path)
    first, second = Board(tmp_path), Board(tmp_path)
    for number in range(5000):  # more than a chunk has room for
        first.cells((COUNT, "q", f"task {number}", "succeeded"))[0] += number
    second.cells((COUNT, "q", "task 7", "succeeded"))[0] += 1
    second.close()

    for _ in range(2):
        sums, _ = boards.read()
        assert len(sums) == 5000
        assert sums[COUNT, "q", "task 7", "succeeded"] == [8]
        assert sums[COUNT, "q", "task 4999", "succeeded"] == [4999]
    assert [path.name for path in tmp_path.iterdir()] == [first.path.name]
    first.close()


def test_a_duration_counts_in_the_first_bound_that_it_does_not_exceed(tmp_path: Path) -> None:
    cells = memoryview(bytearray(8 * 4)).cast("d")
    histogram = Histogram(cells, (0.5, 2))

    for seconds in (0.25, 0.5, 1, 3):
        histogram.observe(seconds)

    assert list(cells) == [2, 1, 1, 4.75]


@pytest.mark.parametrize("bounds", [(), BOUNDS * 2, (1, 2, 3)])
def test_a_histogram_whose_cells_do_not_fit_is_refused(bounds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="bounds"):
        Histogram(memoryview(bytearray(8 * 4)).cast("d"), bounds)
