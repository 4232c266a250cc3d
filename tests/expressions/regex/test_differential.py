"""Generated patterns, matched here and by RE2 itself: as CEL uses it, and through google-re2 (docs/decisions/0017)."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.expressions.regex.strategies import noise, patterns, texts

from perdure.expressions.regex import BadPattern, compile_pattern

REFUSED = "refused"
Answer = bool | str
PATTERNS = st.one_of(patterns, patterns, noise)


def ours(pattern: str, text: str) -> Answer:
    try:
        return compile_pattern(pattern).search(text, lambda steps: None)
    except BadPattern:
        return REFUSED


@pytest.fixture(scope="module")
def cel_oracle() -> Callable[[str, str], Answer]:
    cel = pytest.importorskip("cel_expr_python.cel", reason="cel-expr-python, the oracle, is not installed")
    types = {"text": cel.Type.STRING, "pattern": cel.Type.STRING}
    program = cel.NewEnv(variables=types).compile("text.matches(pattern)")

    def answer(pattern: str, text: str) -> Answer:
        result = program.eval(data={"text": text, "pattern": pattern})
        matches: Answer = REFUSED if result.type() == cel.Type.ERROR else result.value()
        return matches

    return answer


@pytest.fixture(scope="module")
def re2_oracle() -> Callable[[str, str], Answer]:
    re2 = pytest.importorskip("re2", reason="google-re2, the oracle, is not installed")
    options = re2.Options()
    options.log_errors = False

    def answer(pattern: str, text: str) -> Answer:
        try:
            return re2.compile(pattern, options).search(text) is not None
        except re2.error:
            return REFUSED

    return answer


@settings(max_examples=1500, deadline=None, database=None, derandomize=True)
@given(PATTERNS, texts)
def test_agrees_with_re2_of_cel(cel_oracle: Callable[[str, str], Answer], pattern: str, text: str) -> None:
    assert ours(pattern, text) == cel_oracle(pattern, text), (pattern, text)


@pytest.mark.sampled(3)
@settings(max_examples=1500, deadline=None, database=None, derandomize=True)
@given(PATTERNS, texts)
def test_agrees_with_google_re2(re2_oracle: Callable[[str, str], Answer], pattern: str, text: str) -> None:
    assert ours(pattern, text) == re2_oracle(pattern, text), (pattern, text)
