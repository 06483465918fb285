"""What tests of unique jobs share: a stage with a worker for a whole module, and one without for each test."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis as redis_py

from fastq.broker.broker import Broker
from fastq.config import Config
from fastq.keys import QueueKeys
from tests.support.servers import Server
from tests.unique.stage import Stage, serving
from tests.unique.world import World


@pytest.fixture(scope="module")
def module_client(server: Server) -> Iterator[redis_py.Redis]:
    client = server.client()
    yield client
    client.close()


@pytest.fixture(scope="module")
def stage(server: Server, module_client: redis_py.Redis) -> Iterator[Stage]:
    """A stage on which a worker serves; tests keep to keys of their own (`stage.key()`)."""
    namespace = f"stage-{uuid.uuid4().hex[:12]}"
    stage = Stage(server.url, namespace, module_client)
    with serving(stage.app):
        yield stage
    stage.app.close()
    if keys := list(module_client.scan_iter(match=f"{namespace}:*", count=1000)):
        module_client.unlink(*keys)


@pytest.fixture
def idle_stage(url: str, namespace: str, redis: redis_py.Redis) -> Iterator[Callable[..., Stage]]:
    """Makes stages of this test's own, without a worker."""
    made: list[Stage] = []

    def make(url: str = url, **options: Any) -> Stage:
        made.append(Stage(url, namespace, redis, **options))
        return made[-1]

    yield make
    for stage in made:
        stage.app.close()


@pytest.fixture
def world(url: str, namespace: str, redis: redis_py.Redis) -> Iterator[World]:
    """A queue whose workers are played, request by request."""
    broker = Broker(Config(url, namespace))
    yield World(broker, redis, QueueKeys(namespace, "q"))
    broker.close()
