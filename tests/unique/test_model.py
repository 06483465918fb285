"""The laws of unique jobs under whatever may happen, in any order (model.py): in short here, for hours by hand."""

import pytest

from tests.support.servers import Server
from tests.unique.model import check


def test_no_order_of_events_breaks_a_law_of_unique_jobs(server: Server) -> None:
    check(server, steps=600)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(1, 21))
def test_no_order_of_ten_thousand_events_breaks_a_law_of_unique_jobs(server: Server, seed: int) -> None:
    check(server, steps=10_000, seed=seed)
