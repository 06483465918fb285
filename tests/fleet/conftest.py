"""Fleets of a user's program: the folder with the program is that of the command line's tests."""

from collections.abc import Callable, Iterator

import pytest

from tests.cli.conftest import Shop, shop
from tests.support.process import Child, descendants, look_up, wait_until

__all__ = ["shop"]


class FleetOf:
    """A running fleet of the shop."""

    def __init__(self, shop: Shop, *options: str, processes: int = 2) -> None:
        self.shop = shop
        self.processes = processes
        self.program: Child = shop.fastq("worker", "shop", "--processes", str(processes), *options)

    def children(self) -> set[int]:
        """The worker processes, whether they were started by the fleet or by its template."""
        found = [pid for pid, command in descendants().items() if "--child" in command or "--template" in command]
        parents = {process.parent for pid in found if (process := look_up(pid)) is not None}
        return set(found) - parents

    def served(self, count: int = 1) -> None:
        """Wait until workers have said so often that they serve."""
        self.program.wait_line(r"worker \S+ serves", count=count, timeout=30)

    def wait_children(self, condition: Callable[[set[int]], bool], timeout: float = 60) -> set[int]:
        """The children as soon as they fulfil this."""
        try:
            return wait_until(lambda: children if condition(children := self.children()) else None, timeout)
        except AssertionError:
            raise AssertionError(f"{self.children()}\n{self.program.stderr}") from None


def lease(shop: Shop, seconds: float) -> None:
    """Give the shop's workers a lease of this length."""
    source = (shop.folder / "shop.py").read_text()
    (shop.folder / "shop.py").write_text(source.replace('os.environ["SHOP"])', f'os.environ["SHOP"], lease={seconds})'))


@pytest.fixture
def fleet(shop: Shop) -> Iterator[Callable[..., FleetOf]]:
    """Starts fleets that serve already."""
    started: list[FleetOf] = []

    def start(*options: str, processes: int = 2) -> FleetOf:
        started.append(FleetOf(shop, *options, processes=processes))
        started[-1].served(processes)
        return started[-1]

    yield start
    for one in started:
        one.program.close()
