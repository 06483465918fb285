"""Commands for operators, run one after the other in one process: to start one for each takes longer than all the rest."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.process import script


@dataclass(frozen=True)
class Answer:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """The lines of a table, each split where two blanks or more are."""
        return [[cell for cell in line.split("  ") if cell.strip()] for line in self.out.splitlines()]


def operate(*commands: list[str], env: Mapping[str, str] | None = None, cwd: Path | None = None) -> list[Answer]:
    """Run these command lines; nobody is there to be asked."""
    code = f"""
import contextlib, io, json
from fastq.cli.main import run, search_current_folder
search_current_folder()
for arguments in {[*commands]!r}:
    with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.redirect_stdout(io.StringIO()) as out:
        code = run(arguments)
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""
    with script(code, env=env, cwd=cwd) as child:
        assert child.wait(60) == 0, child.stderr
        return [Answer(*json.loads(line)) for line in child.stdout.splitlines()]
