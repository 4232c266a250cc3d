"""Generated patterns, matched here and by RE2 itself (through cel-expr-python)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.expressions.regex.generation import noise, patterns, texts

from perdure.expressions.regex import BadPattern, compile_pattern

cel = pytest.importorskip("cel_expr_python.cel", reason="cel-expr-python, the oracle, is not installed")

ORACLE = cel.NewEnv(variables={"text": cel.Type.STRING, "pattern": cel.Type.STRING}).compile("text.matches(pattern)")
REFUSED = "refused"


@settings(max_examples=1500, deadline=None, database=None, derandomize=True)
@given(st.one_of(patterns, patterns, noise), texts)
def test_both_engines_agree(pattern: str, text: str) -> None:
    answer = ORACLE.eval(data={"text": text, "pattern": pattern})
    theirs = REFUSED if answer.type() == cel.Type.ERROR else answer.value()
    ours: bool | str
    try:
        ours = compile_pattern(pattern).search(text, lambda steps: None)
    except BadPattern:
        ours = REFUSED

    assert ours == theirs, (pattern, text)
