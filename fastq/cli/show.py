"""What commands print: tables for people, one JSON document for machines. Notes and questions go to stderr."""
from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from fastq.cli.text import escaped, escaped_lines, plain

UNBOUNDED = 10_000  # columns: what is piped is not wrapped


def document(**parts: Any) -> None:
    """Print one JSON object. ASCII only, so that whatever it holds is harmless on a terminal too."""
    click.echo(json.dumps({name: plain(_opened(part)) for name, part in parts.items()}, allow_nan=False))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; a column whose name begins with ">" is set to the right. Cells are escaped here."""
    from rich import box
    from rich.table import Table

    console = _console()
    shown = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False, header_style="bold")
    for name in columns:
        right = name.startswith(">")
        shown.add_column(name.removeprefix(">"), justify="right" if right else "left", no_wrap=right, overflow="fold")
    for row in rows:
        shown.add_row(*(_text(cell) for cell in row))
    console.print(shown)


def details(facts: Iterable[tuple[str, str]]) -> None:
    """Print names and values, one pair a line; a value of several lines stands below its name."""
    console = _console()
    shown = [(name, value) for name, value in facts if value not in ("", "-")]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        text = escaped_lines(value)
        lines = f"\n{text}" if "\n" in text else text
        console.out(f"{name:<{width}}  {lines}", highlight=False)


def note(text: str) -> None:
    """Tell something beside the result."""
    click.echo(escaped(text), err=True)


def page_note(shown: int, total: int | None, offset: int, what: str) -> None:
    """Tell what part of a list was shown, and how to get the next."""
    of = f" of {total:,}" if total is not None else ""
    if offset + shown < (total if total is not None else 0):
        note(f"{what} {offset + 1:,} to {offset + shown:,}{of}; the next with --offset {offset + shown}")
    elif shown == 0:
        note(f"no {what}" if not offset else f"no {what} from {offset + 1:,} on{of}")


def confirm(what: str, yes: bool) -> None:
    """Ask before something is destroyed. Raises click.UsageError where nobody can be asked, click.Abort on a no."""
    if yes:
        return
    if not sys.stdin.isatty():
        problem = f"{escaped(what)}: nobody can be asked here, so say --yes if it is meant"
        raise click.UsageError(problem, click.get_current_context())
    if not click.confirm(f"{escaped(what)}. Go on?", err=True):
        note("nothing was changed")
        raise click.exceptions.Exit(1)


def _console() -> Any:
    from rich.console import Console

    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console = Console(markup=False, emoji=False, highlight=False, width=UNBOUNDED, color_system=None)
    return console


def _text(cell: str) -> Any:
    from rich.text import Text

    return Text(escaped(cell))


def _opened(part: Any) -> Any:
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        return {field.name: _opened(getattr(part, field.name)) for field in dataclasses.fields(part)}
    if isinstance(part, list):
        return [_opened(one) for one in part]
    return part
