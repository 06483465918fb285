"""What the field cases share."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cases.site import Site
from tests.support.process import wait_until
from tests.support.proxy import Proxy
from tests.support.servers import Server


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`-m cases` means all of them: those that run anyway are longer then."""
    if "cases" in config.option.markexpr:
        for item in items:
            if item.path.parent == Path(__file__).parent:
                item.add_marker("cases")


@pytest.fixture
def make_site(tmp_path: Path, namespace: str, server: Server) -> Iterator[Callable[..., Site]]:
    """Makes the site of a case, on the session's server unless `server` says otherwise; closed after the test."""
    sites: list[Site] = []

    def make(server: Server = server, **options: Any) -> Site:
        folder = tmp_path / f"site-{len(sites)}"
        folder.mkdir()
        sites.append(Site(server, namespace, folder, **options))
        return sites[-1]

    yield make
    for site in sites:
        site.close()
    if not sites or any(site.server is not server for site in sites):
        return
    wait_until(lambda: not sites[0].connections())


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()


@pytest.fixture
def own_site(make_site: Callable[..., Site], own_server: Server) -> Site:
    """A site on a server of its own, which loses no acknowledged write."""
    return make_site(own_server)


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server) as proxy:
        yield proxy


@pytest.fixture
def full(request: pytest.FixtureRequest) -> bool:
    """Whether the cases run at full length (`-m cases`)."""
    return "cases" in request.config.option.markexpr
