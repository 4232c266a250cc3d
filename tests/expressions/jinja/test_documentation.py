"""The reference page is correct: every example on it is executed."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from perdure.expressions import jinja
from perdure.expressions.jinja import Guard, Limits, TemplateError, compile_text
from perdure.expressions.jinja.access import METHODS
from perdure.expressions.jinja.environment import VALUES

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "jinja.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def examples(language: str) -> list[list[str]]:
    return [line.rsplit(" => ", 1) for block in blocks(language) for line in block.splitlines()]


DATA: dict[str, Any] = json.loads(blocks("json")[0])


@pytest.mark.parametrize(("text", "value"), examples("jinja"))
def test_an_example_gives_the_value_beside_it(text: str, value: str) -> None:
    assert json.dumps(compile_text(text).render(DATA)) == json.dumps(json.loads(value))


@pytest.mark.parametrize(("text", "answer"), examples("guard"))
def test_a_guard_gives_the_answer_beside_it(text: str, answer: str) -> None:
    assert Guard(text).holds(DATA) is json.loads(answer)


@pytest.mark.parametrize("block", blocks("fault"))
def test_an_error_looks_as_shown(block: str) -> None:
    text, error = block.split("\n---\n", 1)

    with pytest.raises(TemplateError) as raised:
        compile_text(text).render(DATA)

    assert f"{raised.value.code}\n{raised.value}\n" == error


@pytest.mark.parametrize("program", blocks("python"))
def test_python_on_the_page_runs(program: str) -> None:
    assert "assert " in program, "what it shows is checked by itself"
    exec(program, {})


def test_every_limit_is_on_the_page_with_its_default() -> None:
    limits = Limits()
    for name in Limits.__struct_fields__:
        assert f"| `{name}` | {getattr(limits, name):,} |" in PAGE


def test_every_code_is_on_the_page() -> None:
    errors = [item for item in vars(jinja).values() if isinstance(item, type) and issubclass(item, TemplateError)]
    codes = {error.code for error in errors} - {TemplateError.code}

    assert codes == set(re.findall(r"^\| `(TEMPLATE-[A-Z-]+)` \|", PAGE, re.MULTILINE))


def test_every_method_and_function_is_on_the_page() -> None:
    words = set(re.findall(r"[a-z0-9_]+", PAGE))

    assert METHODS - words == set()
    assert set(VALUES.globals) - words == set()
