"""Closures for `matches`: a pattern in the source is compiled with it, another when it is first met.

A pattern that stays the same during one evaluation, as one from data does in a filter, is paid for once:
its call has a slot of the frame to remember it by.
"""

from perdure.expressions.cel.errors import EvaluationFault, Failure
from perdure.expressions.cel.frame import Closure, Frame
from perdure.expressions.cel.functions.library import no_overload
from perdure.expressions.cel.functions.patterns import compile_at_run_time, compile_checked, search_compiled
from perdure.expressions.cel.planner.paths import unknown
from perdure.expressions.cel.syntax import Call
from perdure.expressions.cel.values import Value


def match_constant(node: Call, text: Closure, pattern: str) -> Closure:
    try:
        compiled = compile_checked(pattern)
    except EvaluationFault as refusal:
        return unknown(refusal.message, node)

    def run(frame: Frame) -> bool:
        value = text(frame)
        try:
            if type(value) is not str:
                raise no_overload("matches", (value, pattern), is_method=True)
            return search_compiled(frame, value, compiled)
        except Failure as failure:
            failure.blame(node)
            raise

    return run


def match_variable(node: Call, text: Closure, pattern: Closure, slot: int) -> Closure:
    def run(frame: Frame) -> Value:
        value, wanted = text(frame), pattern(frame)
        try:
            if type(value) is not str or type(wanted) is not str:
                raise no_overload("matches", (value, wanted), is_method=True)
            known = frame[slot]
            if known is None or known[0] != wanted:
                known = frame[slot] = (wanted, compile_at_run_time(frame, wanted))
            return search_compiled(frame, value, known[1])
        except Failure as failure:
            failure.blame(node)
            raise

    return run
