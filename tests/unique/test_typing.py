"""Type checkers accept right calls of unique jobs and refuse wrong ones, line by line (typed_calls.py)."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import fastq

SAMPLE = Path(__file__).with_name("typed_calls.py")
BAD = {number for number, line in enumerate(SAMPLE.read_text().splitlines(), 1) if line.endswith("# bad")}


def test_mypy_strict_accepts_right_calls_and_refuses_wrong_ones(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="the type checker is no part of the test extra; .ci/run has it")
    command = [sys.executable, "-P", "-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent"]
    environment = {**os.environ, "MYPYPATH": str(Path(fastq.__file__).parents[1])}

    said = subprocess.run(
        [*command, "--cache-dir", os.devnull, SAMPLE], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )

    found = {int(line) for line in re.findall(r"typed_calls\.py:(\d+): error", said.stdout)}
    assert found == BAD, said.stdout + said.stderr


@pytest.mark.skipif(find_spec("pyright") is None, reason="pyright is not installed")
def test_pyright_accepts_right_calls_and_refuses_wrong_ones(tmp_path: Path) -> None:
    settings = {"extraPaths": [str(Path(fastq.__file__).parents[1])], "pythonVersion": "3.11"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    (tmp_path / SAMPLE.name).write_text(SAMPLE.read_text())

    said = subprocess.run(
        [sys.executable, "-P", "-m", "pyright", "--outputjson", "-p", tmp_path], capture_output=True, text=True, check=False
    )

    found = json.loads(said.stdout)["generalDiagnostics"]
    assert {one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"} == BAD, found
