"""What docs/cases.md names is there."""

import re

from tests.support.process import ROOT


def test_every_test_that_the_cases_name_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "cases.md").read_text()))
    names = [name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())]

    assert len(named) > 50
    assert {prefix for prefix in named if not any(name.startswith(prefix) for name in names)} == set()


def test_every_case_is_named() -> None:
    text = (ROOT / "docs" / "cases.md").read_text()
    assert [number for number in range(1, 62) if f"C{number:02}" not in text] == []
