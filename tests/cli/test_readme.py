"""The tour of the README does what it says."""

import re
from pathlib import Path

import pytest

from tests.support.process import ROOT, Child, python

FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def tour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the tour names, and a server of its own."""
    for kind, text in FENCED.findall((ROOT / "README.md").read_text()):
        if kind == "python":
            name = text.splitlines()[0].removeprefix("# ")
            (tmp_path / name).write_text(text)
    monkeypatch.setenv("FASTQ_URL", f"embedded://{tmp_path}/data")
    return tmp_path


def run(program: str, folder: Path) -> Child:
    # The file's own folder comes first on the path, as it does for `python file.py`; -P would take it away.
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); import runpy; runpy.run_path({program!r}, run_name='__main__')"
    return python("-c", code, cwd=folder)


def test_what_is_enqueued_is_run_and_the_second_receipt_of_an_order_is_refused(tour: Path) -> None:
    with run("enqueue.py", tour) as producer:
        assert producer.wait() == 0, producer.stderr
    with python("-m", "fastq.cli", "worker", "shop", "--burst", "--processes", "2", cwd=tour) as worker:
        assert worker.wait() == 0, worker.stderr

    refused, enqueued = producer.stdout.splitlines()
    assert re.fullmatch(r"o-1 is taken by job \S{36}, for 7200 s at most", refused)
    assert enqueued == "10000 enqueued, the last one is waiting"
    sent = sorted(worker.stdout.splitlines())
    assert sent == [f"sending the receipt of o-{n}" for n in (1, 2, 3)]


def test_a_result_is_waited_for(tour: Path) -> None:
    with python("-m", "fastq.cli", "worker", "shop", "--processes", "1", cwd=tour) as worker:
        worker.wait_line("serves")
        with run("ask.py", tour) as asker:
            assert asker.wait() == 0, asker.stderr

    assert asker.stdout == "logo.png, 64 wide"


def test_its_commands_are_those_that_are_there() -> None:
    commands = {line.split("#")[0].strip() for kind, text in FENCED.findall((ROOT / "README.md").read_text()) if kind == "sh"
                for line in text.splitlines()}  # fmt: skip
    fastq = [command.split("fastq ", 1)[1] for command in commands if re.search(r"(?:^|/)fastq ", command)]

    assert fastq
    for command in fastq:
        with python("-m", "fastq.cli", command.split()[0], "--help") as child:
            assert child.wait() == 0
            options = re.findall(r"--[a-z-]+", command)
            assert [option for option in options if option not in child.stdout] == []
