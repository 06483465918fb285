"""An app on the session's server, called from sync or from async code."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fastq import FastQ


@pytest.fixture
def new_app(url: str, namespace: str) -> Iterator[Callable[..., FastQ]]:
    """Makes apps with options; they are closed after the test."""
    apps = []

    def make(**options: Any) -> FastQ:
        apps.append(FastQ(**{"url": url, "namespace": namespace, **options}))
        return apps[-1]

    yield make
    for app in apps:
        app.close()


@pytest.fixture
def app(new_app: Callable[..., FastQ]) -> FastQ:
    return new_app()


class Sync:
    """Calls the methods of a task as they are."""

    def __call__(self, owner: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(owner, method)(*args, **kwargs)


class Async:
    """Calls the a- methods, each on an event loop of its own."""

    def __init__(self, apps: Callable[[], list[FastQ]]) -> None:
        self._apps = apps

    def __call__(self, owner: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        async def call() -> Any:
            try:
                return await getattr(owner, f"a{method}")(*args, **kwargs)
            finally:
                for app in self._apps():
                    await app.aclose()

        return asyncio.run(call())


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest, app: FastQ) -> Any:
    """`call(task, "enqueue", ...)`: the same from sync and from async code."""
    return Sync() if request.param == "sync" else Async(lambda: [app])
