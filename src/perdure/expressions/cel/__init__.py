"""CEL, the Common Expression Language: compile once, evaluate many times, the same answer everywhere.

    program = compile_program("order.total > 100 && order.status in ['paid', 'sent']")
    program.evaluate({"order": {"total": 120, "status": "paid"}})

The rooms, in the order an expression passes them: source, tokens, parser (with literals and macros), checks (with
names), planning, and then values at work: access, comparison, arithmetic, functions. Protobuf messages are not here.
"""

from perdure.expressions.cel.frame import Limits
from perdure.expressions.cel.instants import Duration, Timestamp
from perdure.expressions.cel.program import Environment, Program, compile_program
from perdure.expressions.cel.values import CelList, CelMap, Optional, TypeValue, Uint
from perdure.expressions.errors import EvaluationFault, ExpressionError, Failure, LimitExceeded, SyntaxFault
from perdure.expressions.problems import Finding
from perdure.expressions.source import Position

__all__ = [
    "CelList",
    "CelMap",
    "Duration",
    "Environment",
    "EvaluationFault",
    "ExpressionError",
    "Failure",
    "Finding",
    "LimitExceeded",
    "Limits",
    "Optional",
    "Position",
    "Program",
    "SyntaxFault",
    "Timestamp",
    "TypeValue",
    "Uint",
    "compile_program",
]
