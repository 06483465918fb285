"""A type checker accepts right calls and refuses wrong ones."""

import os
import re
import textwrap

import pytest

mypy = pytest.importorskip("mypy.api", reason="the type checker is no part of the test extra; .ci/run has it")

PROGRAM = '''
from datetime import timedelta

from fastq import Backoff, FastQ, Job, Task, Unique

app = FastQ()


@app.task
def plain(path: str, width: int = 800) -> float:
    return 1.0


@app.task(queue="mail", retries=Backoff(3), unique=Unique(ttl=timedelta(minutes=1), key="order"), timeout=None)
async def send(order: str, *, urgent: bool = False) -> bytes:
    return b""


reveal_type(plain("a"))  # ok float
async def right() -> None:
    job: Job = plain.enqueue("a", width=5)
    job = await send.aenqueue("o-1", urgent=True)
    content: bytes = await send("o-1")
    plain.using(delay=60, queue="slow", retries=3).enqueue("a")
    send.enqueue_many([("o-1",), {"order": "o-2"}, plain.prepare("a", 3)]).duplicates[0].index
    await send.aenqueue_many((str(i),) for i in range(5))
    app.enqueue_many([send.prepare("o-1"), plain.prepare("a")])
    app.using(unique=Unique(60), retries=lambda attempt, error: attempt * 2.0).enqueue("send", order="o-1")
    same: Task[[str, int], float]
    job.result(timeout=10)


async def wrong() -> None:
    plain.enqueue(1)  # bad
    plain.enqueue()  # bad
    plain.enqueue("a", height=3)  # bad
    plain.prepare("a", "b")  # bad
    await plain.aenqueue("a", "b")  # bad
    send.enqueue("o-1", True)  # bad
    plain.using(delay=60).enqueue(b"a")  # bad
    plain.using(dely=60)  # bad
    plain.using(queue=5)  # bad
    app.using(unique=60)  # bad
    app.task(retrys=3)  # bad
    app.task(queue=3)(plain.fn)  # bad
    Unique(60, until="end")  # bad
    plain.enqueue_many([3])  # bad
    number: int = plain("a")  # bad
'''


def test_mypy_strict_accepts_right_calls_and_refuses_wrong_ones(tmp_path, monkeypatch):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    import fastq

    monkeypatch.setenv("MYPYPATH", os.path.dirname(os.path.dirname(fastq.__file__)))

    out, err, _ = mypy.run(
        ["--strict", "--no-incremental", "--follow-imports=silent", "--cache-dir", os.devnull, str(program)]
    )

    assert not err
    found = {int(line) for line in re.findall(r"program\.py:(\d+): error", out)}
    expected = {n for n, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# bad")}
    assert found == expected, out
    assert 'Revealed type is "builtins.float"' in out or 'Revealed type is "float"' in out
