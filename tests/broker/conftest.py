"""What tests of the broker share: calls that tell who made them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fastq.broker.broker import Broker
from fastq.broker.requests import Request
from fastq.config import Config


def echo(text: str, *, repeatable: bool = True) -> Request[str]:
    """A call whose answer is its own: whoever gets another's reply shows it."""
    return Request(bytes.decode, commands=((b"ECHO", text),), repeatable=repeatable)


def info() -> Request[dict[str, str]]:
    """What the server knows of the connection that asks."""

    def read(reply: bytes) -> dict[str, str]:
        return dict(field.split("=", 1) for field in reply.decode().split() if "=" in field)

    return Request(read, commands=((b"CLIENT", b"INFO"),))


@pytest.fixture
def make_broker() -> Iterator[Callable[..., Broker]]:
    """Makes brokers by URL and further settings of Config; closes their blocking connections."""
    made: list[Broker] = []

    def make(url: str, **settings: Any) -> Broker:
        made.append(Broker(Config(url, **settings)))
        return made[-1]

    yield make
    for broker in made:
        broker.close()


@pytest.fixture
def broker(url: str, make_broker: Callable[..., Broker]) -> Broker:
    return make_broker(url)
