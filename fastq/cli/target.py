"""What commands for operators share: the FastQ that they are told of, the queue, and where in a list to begin."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fastq.cli.apps import find_app

if TYPE_CHECKING:
    from fastq.app import FastQ

F = TypeVar("F", bound=Callable[..., Any])


def on_app(operands: str = "", *, least: int = 0, most: int | None = 0) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the FastQ of `MODULE[:APP]`, or of --url and --namespace, as its first argument.

    With `operands` (how help shows them) the words after it come second, as a tuple of at least `least` and at most
    `most` of them (None: any number).
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @click.argument("words", nargs=-1, metavar=f"[MODULE[:APP]] {operands}".strip())
        @click.option("--url", metavar="URL", help="A server, instead of MODULE; left out: $FASTQ_URL.")
        @click.option("--namespace", metavar="NAME", help="A namespace, instead of MODULE; left out: fastq.")
        @functools.wraps(function)
        def command(words: tuple[str, ...], url: str | None, namespace: str | None, **options: Any) -> None:
            named = url is None and namespace is None
            if named and not words:
                raise _wrong("say which: MODULE[:APP], or --url and --namespace")
            rest = words[1:] if named else words
            if len(rest) < least or (most is not None and len(rest) > most):
                what = operands.replace("...", "").strip() or "nothing else"
                raise _wrong(f"expected {what} after MODULE[:APP] (no MODULE with --url or --namespace), got {len(rest)} words")
            app = _imported(words[0]) if named else _plain(url, namespace)
            with app:
                function(app, *((rest,) if operands else ()), **options)

        return command

    return decorate


def paged(function: F) -> F:
    """Give a command `limit` and `offset`."""
    function = click.option("--offset", type=click.IntRange(0), default=0, metavar="N", help="Skip so many.")(function)
    return limited(function)


def limited(function: F) -> F:
    """Give a command `limit`."""
    return click.option("-n", "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, metavar="N",
                        help="Show so many at the most.")(function)  # fmt: skip


def for_machines(function: F) -> F:
    """Give a command `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")(function)


def sure(function: F) -> F:
    """Give a command `yes`."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask first.")(function)


def queue_option(default: str | None, help: str) -> Callable[[F], F]:
    """Give a command `queue`."""
    return click.option("-q", "--queue", metavar="NAME", default=default, show_default=default is not None, help=help)


def _imported(target: str) -> FastQ:
    from fastq.logs import set_up

    set_up(level="error")  # what a program warns of is for those who run it
    app = find_app(target)
    app.import_tasks()
    return _reachable(app)


def _plain(url: str | None, namespace: str | None) -> FastQ:
    from fastq.app import FastQ

    return _reachable(FastQ(url, namespace=namespace or "fastq"))


def _reachable(app: FastQ) -> FastQ:
    """The same, unless its server is a temporary one of this process's own, in which nothing can be."""
    where = app.config.endpoint()
    if where.kind == "embedded" and not where.folder:
        from fastq.embedded import open_embedded

        open_embedded(where.url, may_create=False)
    return app


def _wrong(problem: str) -> click.UsageError:
    return click.UsageError(problem, click.get_current_context())
