"""Whatever the text and the data: a value, or one of our errors. No other exception, no hang."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.expressions.gotemplate import DETERMINISTIC, Environment, ExpressionError, Limits, Template

SMALL = Environment(limits=Limits(steps=20_000, size=20_000))
DATA: dict[str, Any] = {
    "inputs": {"n": 3, "f": 1.5, "s": "a-B c", "l": [1, "x", None], "m": {"k": {"j": 1}}, "nil": None, "d": "1h"},
    "steps": {"a-b": {"output": {"$bubuStorageRef": "r"}}, "c": {"output": [1]}},
}
OPERANDS = (
    *("inputs.n", "inputs.f", "inputs.s", "inputs.l", "inputs.m", "inputs.nil", "inputs.d", "inputs.x", "steps.c"),
    *(
        "steps.a_b.output",
        "1",
        "-7",
        "2.5",
        '"text"',
        '"2006-01-02"',
        "`{}`",
        "true",
        "nil",
        ".",
        "$",
        "'c'",
        '"%v %d"',
    ),
)
WORDS = (
    *("{{", "}}", "{{-", "-}}", "if", "else", "end", "range", "with", "break", "continue", "template", "$x", ":=", "="),
    *(",", "|", "(", ")", "[", "]", ".", ".a", "/*", "*/", "'", '"', "`", "\\", "\n", " ", "x", "é", "0x", "1e", "%"),
)


def attempt(text: str) -> None:
    try:
        Template(text, SMALL).render(DATA)
    except ExpressionError as error:
        assert str(error)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from([*WORDS, *OPERANDS, *DETERMINISTIC.functions]), max_size=30), st.sampled_from(["", " "])
)
def test_any_words_in_any_order(message: list[str], joint: str) -> None:
    attempt(joint.join(message))
    attempt("{{ " + " ".join(message) + " }}")


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    attempt(text)
    attempt("{{" + text + "}}")


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(DETERMINISTIC.functions)), st.lists(st.sampled_from(OPERANDS), max_size=4))
def test_any_function_with_any_arguments(name: str, operands: list[str]) -> None:
    attempt(f"{{{{ {name} {' '.join(operands)} }}}}")
    attempt(f"a {{{{ {' '.join(operands[:1])} | {name} {' '.join(operands[1:])} }}}}")


def test_every_function_with_every_pair_of_arguments() -> None:
    for name in DETERMINISTIC.functions:
        for first in OPERANDS:
            attempt(f"{{{{ {name} {first} }}}}")
            for second in ("inputs.s", "inputs.l"):
                attempt(f"{{{{ {name} {second} {first} }}}}")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(JSON, st.sampled_from(sorted(DETERMINISTIC.functions)))
def test_any_data(value: Any, name: str) -> None:
    template = Template(f"{{{{ {name} inputs }}}}|{{{{ inputs }}}}", SMALL)
    try:
        template.render({"inputs": value})
    except ExpressionError as error:
        assert str(error)
