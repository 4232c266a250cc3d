"""Every rule of the contract of analysis is in the page of what is done, and cited by the tests that the page names."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "reference" / "analysis-coverage.md"
RULES = [f"ANA-{number:03}" for number in (*range(1, 14), 20, 21, *range(30, 34), 40)]


def test_each_rule_is_cited_by_its_tests() -> None:
    """ANA-001 to ANA-040: a rule whose tests do not name it can be lost without anybody noticing."""
    rows = {line.split("|")[1].strip(): line.split("|") for line in PAGE.read_text().splitlines() if "| ANA-" in line}
    assert list(rows) == RULES

    for rule, row in rows.items():
        assert row[2].strip() == "done", rule
        files = re.findall(r"[\w/]+\.py", row[5])
        paths = [TESTS.parent / name if name.startswith("tests/") else TESTS / "analysis" / name for name in files]
        assert paths and all(path.is_file() for path in paths), rule
        assert any(re.search(rf"{rule}\b", path.read_text()) for path in paths), f"no test of {rule} cites it"
