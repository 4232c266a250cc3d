"""CEL, the Common Expression Language: compile once, evaluate many times, with the same result everywhere.

    program = compile_program("order.total > 100 && order.status in ['paid', 'sent']")
    program.evaluate({"order": {"total": 120, "status": "paid"}})

The modules, in the order of processing: source, tokens, parser (with literals and macros), checks (with names),
planner; then evaluation: access, comparison, arithmetic, functions. Protobuf messages are not supported.
"""

from perdure.expressions.cel.frame import Limits
from perdure.expressions.cel.instants import Duration, Timestamp
from perdure.expressions.cel.program import Environment, Program, compile_program
from perdure.expressions.cel.values import CelList, CelMap, Optional, TypeValue, Uint
from perdure.expressions.errors import EvaluationFault, ExpressionError, Failure, LimitExceeded, SyntaxFault
from perdure.expressions.source import ExpressionProblem, Position

__all__ = [
    "CelList",
    "CelMap",
    "Duration",
    "Environment",
    "EvaluationFault",
    "ExpressionError",
    "ExpressionProblem",
    "Failure",
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
