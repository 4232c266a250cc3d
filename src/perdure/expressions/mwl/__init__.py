"""MWL's use of CEL: which strings are expressions, what numbers in data are, what a result may be.

body = find_expression("{{ vars.count + 1.0 }}")          # None for a literal
expression = compile_expression(body, frozenset({"vars"}))
expression.evaluate({"vars": {"count": 4}})               # 5, or ExpressionFault with a failure code
expression.holds(...)                                      # for predicates
Template({"n": "{{ vars.count }}"}, roots).evaluate(...)  # a JSON value with expressions in its leaves

The expression language itself is in `cel`.
"""

from perdure.expressions.mwl.durations import format_iso_duration, parse_iso_duration
from perdure.expressions.mwl.embedded import find_expression
from perdure.expressions.mwl.expression import (
    EVALUATION_ERROR,
    UNREPRESENTABLE_VALUE,
    Expression,
    ExpressionFault,
    Growth,
    compile_expression,
    find_growth,
)
from perdure.expressions.mwl.expression_analysis import analyse
from perdure.expressions.mwl.functions import ClockPin
from perdure.expressions.mwl.results import ConstructBudget, Json
from perdure.expressions.mwl.template import Template

__all__ = [
    "EVALUATION_ERROR",
    "UNREPRESENTABLE_VALUE",
    "ClockPin",
    "ConstructBudget",
    "Expression",
    "ExpressionFault",
    "Growth",
    "Json",
    "Template",
    "analyse",
    "compile_expression",
    "find_expression",
    "find_growth",
    "format_iso_duration",
    "parse_iso_duration",
]
