"""What the documentation names is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
TESTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^\s*(?:async )?def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page):
    shown = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)  # samples have tests of their own
    named = set(re.findall(r"`(test_\w+)`", shown))

    missing = {name for name in named - TESTS if not any(test.startswith(f"{name}_") for test in TESTS)}  # `test_c27` is enough
    assert missing == set()


def test_the_page_on_delivery_names_tests_at_all():
    assert len(re.findall(r"`test_\w+`", (ROOT / "docs" / "delivery.md").read_text("utf-8"))) > 30
