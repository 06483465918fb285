"""The pytest fixture `fastq_test`; see docs/testing.md. Loaded into every run of pytest: fastq itself is only on demand."""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fastq.app import FastQ
    from fastq.testing import Testing


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option `fastq_app`."""
    parser.addini("fastq_app", "the FastQ under test by the fixture fastq_test: MODULE:APP", default="")


@pytest.fixture
def fastq_app(pytestconfig: pytest.Config) -> FastQ:
    """The FastQ that `fastq_test` puts under test: the one that the option `fastq_app` names. Override it for another."""
    target = pytestconfig.getini("fastq_app")
    if not target:
        raise pytest.UsageError(
            "fastq_test has to know your FastQ: set fastq_app = MODULE:APP in pytest's options, or write a fixture"
            " fastq_app that returns it"
        )
    import click

    from fastq.cli.apps import find_app

    try:
        return find_app(target)
    except click.UsageError as error:
        raise pytest.UsageError(f"fastq_app = {target}: {error.message}") from None


@pytest.fixture(scope="session")
def _fastq_server() -> Iterator[None]:
    """The private server ends with the session."""
    from fastq.testing import stop_server

    yield
    stop_server()


@pytest.fixture
def fastq_test(fastq_app: FastQ, _fastq_server: None) -> Iterator[Testing]:
    """The FastQ under test: `jobs(state)`, `run()`, `advance(seconds)`, `outcomes`."""
    with fastq_app.testing() as testing:
        yield testing
