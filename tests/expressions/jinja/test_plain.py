"""What is computed without Jinja equals Jinja's result; otherwise Jinja is used."""

import sys
from itertools import product
from typing import Any

import pytest

from perdure.expressions.jinja import TemplateError
from perdure.expressions.jinja.budget import DEFAULT_LIMITS
from perdure.expressions.jinja.environment import GUARDS, VALUES, MeteredEnvironment
from perdure.expressions.jinja.program import Program

OPERANDS = (
    "a",
    "a.b",
    "a['b'].c",
    "l[0]",
    "l[5]",
    "l.x",
    "s",
    "s.x",
    "n",
    "f",
    "t",
    "none",
    "gone",
    "gone.b",
    "1",
    "'x'",
)
SIGNS = ("==", "!=", "<", "<=", ">", ">=", "and", "or", "in")
DATA: dict[str, Any] = {
    "a": {"b": {"c": 1}, "items": 3},
    "l": [{"x": 1}, 2],
    "s": "x",
    "n": 1,
    "f": 1.5,
    "t": True,
    "none": None,
}
OTHERS = (
    "not n",
    "not gone",
    "not (n == 1)",
    "n == 1 and s == 'x' or gone",
    "a.items",
    "a['items']",
    "l[true]",
    "1 < n < 3",
)


def answer(program: Program) -> Any:
    try:
        result = program.render(DATA) if program._environment is VALUES else program.evaluate(DATA)
    except TemplateError as fault:
        return str(fault)
    return (type(result).__name__, str(result) if program._environment is VALUES else bool(result))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("environment", [VALUES, GUARDS], ids=["value", "guard"])
def test_the_answer_is_that_of_jinja(environment: MeteredEnvironment) -> None:
    """PBK-147 PBK-148: whatever is there, missing, or of the wrong kind."""
    compared = [f"{left} {sign} {right}" for left, sign, right in product(OPERANDS, SIGNS, OPERANDS)]

    for text in (*OPERANDS, *compared, *OTHERS):
        program = Program(f"{{{{ {text} }}}}", environment, DEFAULT_LIMITS)
        plainly = answer(program)
        program._plain = None

        assert plainly == answer(program), text


def files_at_work(program: Program) -> set[str]:
    """Whose functions are called while it is evaluated."""
    files: set[str] = set()
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, _: files.add(frame.f_code.co_filename) if event == "call" else None)
    try:
        program.evaluate(DATA)
    finally:
        sys.setprofile(before)
    return files


@pytest.mark.parametrize("text", ["a.b", "a['b'].c", "l[0]", "n < 2", "s == 'x' and not t", "s != none or n >= f"])
def test_paths_and_comparisons_need_no_jinja(text: str) -> None:
    """The commonest guards and arguments: no context, no budget, no generator is made for them."""
    files = files_at_work(Program(f"{{{{ {text} }}}}", GUARDS, DEFAULT_LIMITS))

    assert [file for file in files if "jinja2" in file or file.startswith("<")] == []
    assert any("jinja2" in file for file in files_at_work(Program("{{ n + 1 }}", GUARDS, DEFAULT_LIMITS)))


@pytest.mark.parametrize("text", ["a.b | length", "n + 1", "s ~ s", "a.get('b')", "[n]", "l[n]", "1 < n < 3", "s in l"])
def test_anything_else_is_left_to_jinja(text: str) -> None:
    assert Program(f"{{{{ {text} }}}}", VALUES, DEFAULT_LIMITS)._plain is None


def test_text_around_a_path_is_left_to_jinja() -> None:
    program = Program("x {{ s }}", VALUES, DEFAULT_LIMITS)

    assert program._plain is None
    assert program.render(DATA) == "x x"


def test_data_go_out_by_reference() -> None:
    """PBK-148."""
    result = Program("{{ a.b }}", VALUES, DEFAULT_LIMITS).render(DATA)

    assert result is DATA["a"]["b"]
