"""The value or the fault of an expression in one line."""

from typing import Any

import pytest

from perdure.expressions.cel import EvaluationFault, ExpressionProblem, SyntaxFault, compile_program


def value_of(text: str, **roots: Any) -> Any:
    return compile_program(text).evaluate(roots)


def fault_of(text: str, **roots: Any) -> EvaluationFault:
    with pytest.raises(EvaluationFault) as raised:
        compile_program(text).evaluate(roots)
    return raised.value


def refusal_of(text: str) -> tuple[ExpressionProblem, ...]:
    with pytest.raises(SyntaxFault) as raised:
        compile_program(text)
    return raised.value.findings
