"""Closures for `&&`, `||`, `!` and `?:`.

`&&` and `||` are commutative in CEL: an operand that decides the result absorbs the errors of the others.
"""

from perdure.expressions.cel.frame import PRICE_OF_A_FAULT, Closure, Frame, charge
from perdure.expressions.cel.syntax import Node, Ternary
from perdure.expressions.cel.values import Value, type_name
from perdure.expressions.errors import EvaluationFault


def decide(terms: list[Closure], nodes: tuple[Node, ...], decisive: bool) -> Closure:
    """`||` when `decisive` is true, `&&` when it is false."""
    if len(terms) == 2:
        return _decide_two(terms[0], terms[1], nodes, decisive)

    def run(frame: Frame) -> Value:
        fault: EvaluationFault | None = None
        for position, term in enumerate(terms):
            try:
                value = term(frame)
            except EvaluationFault as raised:
                charge(frame, PRICE_OF_A_FAULT)
                fault = fault or raised
                continue
            if value is decisive:
                return decisive
            if value is not (not decisive):
                fault = fault or _not_a_bool(value, nodes[position])
        if fault is not None:
            try:
                raise fault
            finally:
                del fault  # else it keeps this frame alive by itself, with all the values in it
        return not decisive

    return run


def _decide_two(left: Closure, right: Closure, nodes: tuple[Node, ...], decisive: bool) -> Closure:
    undecided = not decisive

    def run(frame: Frame) -> Value:
        try:
            value = left(frame)
        except EvaluationFault as fault:
            charge(frame, PRICE_OF_A_FAULT)
            if _evaluates_to(right, frame, decisive):
                return decisive
            raise fault from None
        if value is decisive:
            return decisive
        other = right(frame)
        if other is decisive:
            return decisive
        if value is not undecided:
            raise _not_a_bool(value, nodes[0])
        if other is not undecided:
            raise _not_a_bool(other, nodes[1])
        return undecided

    return run


def _evaluates_to(term: Closure, frame: Frame, expected: bool) -> bool:
    try:
        return term(frame) is expected
    except EvaluationFault:
        return False  # the other operand failed first: its error is the one to report


def negate(operand: Closure, node: Node) -> Closure:
    def run(frame: Frame) -> Value:
        value = operand(frame)
        if value is True:
            return False
        if value is False:
            return True
        raise _not_a_bool(value, node)

    return run


def choose(condition: Closure, then: Closure, otherwise: Closure, node: Ternary) -> Closure:
    def run(frame: Frame) -> Value:
        value = condition(frame)
        if value is True:
            return then(frame)
        if value is False:
            return otherwise(frame)
        raise _not_a_bool(value, node.condition)

    return run


def _not_a_bool(value: Value, node: Node) -> EvaluationFault:
    return EvaluationFault(f"expected a bool, not {type_name(value)}", node)
