"""The list at the top of CONTRIBUTING.md leads to the right files."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| ([^|]+) \| `([\w/]+\.py)` \| (`(\w+)`[^|]*) \|$", re.MULTILINE)
ROWS = ROW.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Conventions")[0])

QUESTIONS = {
    "the rules of a gate (Story)",
    "the lease of a server",
    "the retry delay of a Flow",
    "the loop of a Playbook",
    "the JSON of `ps`",
    "the size limit of a large value",
    "the fence",
}


def test_every_question_is_answered() -> None:
    assert {question for question, *_ in ROWS} == QUESTIONS


@pytest.mark.parametrize(("question", "file", "remark", "name"), ROWS, ids=[row[0] for row in ROWS])
def test_the_file_holds_what_is_said(question: str, file: str, remark: str, name: str) -> None:
    path = ROOT / "src" / "perdure" / file

    assert path.exists(), f"{question}: where is it now?"
    assert re.search(rf"\b{name}\b", path.read_text(encoding="utf-8")), f"{file} has no {name}"
    assert [
        other
        for other in re.findall(r"`([\w/]+\.py)`", remark)
        if not (path.parents[0] / other).exists() and not (ROOT / "src" / "perdure" / other).exists()
    ] == []
