"""The test kit starts a server of its own; it has to be gone when the tests are over."""

from collections.abc import Iterator

import pytest

from fastq import FastQ
from fastq.testing import stop_server

NOWHERE = "redis://127.0.0.1:1/0"  # what the program would use, were it not under test


@pytest.fixture(scope="module", autouse=True)
def _no_server_stays() -> Iterator[None]:
    yield
    stop_server()


@pytest.fixture
def app() -> FastQ:
    return FastQ(NOWHERE, namespace="shop", max_queue=1000)
