"""The reference page is correct: every example on it is executed."""

import json
import re
from pathlib import Path

import pytest

from perdure.documents import Limits, UnreadableText, errors, read_document

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "yaml.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


VALUES = re.findall(r"^\| `(.+)` \| `(.+)` \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("expected", "value"), VALUES)
def test_a_value_is_read_as_the_table_says(expected: str, value: str) -> None:
    assert json.dumps(read_document(f"a: {expected}".encode()).data["a"]) == value


@pytest.mark.parametrize("block", blocks("problem"))
def test_a_problem_looks_as_shown(block: str) -> None:
    text, message = block.split("---\n", 1)

    with pytest.raises(UnreadableText) as refused:
        read_document(text.encode())

    assert str(refused.value) == message.rstrip("\n")


@pytest.mark.parametrize("program", blocks("python"))
def test_python_on_the_page_runs(program: str) -> None:
    assert "assert " in program, "what it shows is checked by itself"
    exec(program, {})


def test_every_limit_is_on_the_page_with_its_default() -> None:
    limits = Limits()
    for name in Limits.__struct_fields__:
        assert f"| `{name}` | {getattr(limits, name):,} |" in PAGE


def test_every_code_is_on_the_page() -> None:
    codes = {value for value in vars(errors).values() if isinstance(value, str) and value.startswith("DOC-")}

    assert codes == set(re.findall(r"^\| `(DOC-[A-Z-]+)` \|", PAGE, re.MULTILINE))
