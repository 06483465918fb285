"""`python -m bench.peers` in its shortest form: it is run rarely, and its peers go on without us."""

import json
from pathlib import Path

import pytest

import fastq_ext
from tests.support.process import ROOT, script

SHORTEST = "0.0001"
RUN = "import sys; from bench.peers.__main__ import main; sys.exit(main(sys.argv[1:]))"

pytestmark = pytest.mark.skipif(fastq_ext.DEBUG, reason="a debug build is not measured")


def measured(json_file: Path, *options: str, timeout: float) -> dict:
    with script(RUN, *options, "--runs", "1", "--scale", SHORTEST, "--json", str(json_file), cwd=ROOT) as bench:
        assert bench.wait(timeout) == 0, bench.stderr
    assert "drain 2" in bench.stdout
    return json.loads(json_file.read_text("utf-8"))["systems"]


def test_fastq_has_every_figure(server_kind, tmp_path):
    systems = measured(tmp_path / "fastq.json", "--only", "fastq", timeout=60)

    assert list(systems) == ["fastq"]
    assert systems["fastq"]["failed"] == {}
    figures = systems["fastq"]["figures"]
    assert {"one", "in_flight", "bulk", "unique_bulk", "drain_1", "drain_2", "server_us", "bytes", "p50", "p99"} <= set(figures)
    assert all(figure["median"] > 0 for figure in figures.values())


@pytest.mark.peers
@pytest.mark.timeout(1800)
def test_every_peer_that_can_be_installed_has_figures(server_kind, tmp_path):
    systems = measured(tmp_path / "peers.json", timeout=1800)

    absent = {name for name, system in systems.items() if "all" in system["failed"]}  # the reason is in the output
    assert {name: system["failed"] for name, system in systems.items() if system["failed"] and name not in absent} == {}
    for name in systems.keys() - absent:
        figures = systems[name]["figures"]
        assert {"one", "drain_1", "drain_2", "p50"} <= set(figures), name
        assert all(figure["median"] > 0 for figure in figures.values()), name
