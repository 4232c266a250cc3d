"""Closures for comparison, membership and arithmetic.

The common cases (two values of the same plain type, a comparison with a constant) are decided in the closure;
everything else is left to `comparison` and `arithmetic`, which handle all types and errors.
"""

import operator
from collections.abc import Callable

from perdure.expressions.cel import arithmetic, comparison, syntax
from perdure.expressions.cel.frame import Closure, Frame
from perdure.expressions.cel.syntax import Node
from perdure.expressions.cel.values import INT_MAX, INT_MIN, Value, type_name
from perdure.expressions.errors import EvaluationFault, Failure

_EXACT = 2**53  # ints up to this are exact as doubles
_SHORT = 500  # comparing longer strings takes time that must be paid for
_ORDERS: dict[str, tuple[Callable[[Value, Value], bool], tuple[int, ...]]] = {
    "<": (operator.lt, (-1,)),
    "<=": (operator.le, (-1, 0)),
    ">": (operator.gt, (1,)),
    ">=": (operator.ge, (1, 0)),
}


def binary(node: syntax.Binary, left: Closure, right: Closure) -> Closure:
    """A comparison or `in`."""
    match node.operator:
        case "==":
            return _equal(node, left, right)
        case "!=":
            equal = _equal(node, left, right)
            return lambda frame: not equal(frame)
        case "in":
            return _member(node, left, right)
    return _ordered(node, left, right)


def _equal(node: syntax.Binary, left: Closure, right: Closure) -> Closure:
    constant = _constant(node.right)
    if type(constant) is str and len(constant) < _SHORT:

        def equal_text(frame: Frame) -> bool:
            value = left(frame)
            return type(value) is str and value == constant

        return equal_text

    def equal(frame: Frame) -> bool:
        left_value, right_value = left(frame), right(frame)
        kind = type(left_value)
        if kind is type(right_value) and (
            kind is float or kind is int or kind is bool or (kind is str and len(left_value) < _SHORT)
        ):
            return bool(left_value == right_value)
        try:
            return comparison.equals(frame, left_value, right_value)
        except Failure as failure:
            failure.blame(node)
            raise

    return equal


def _ordered(node: syntax.Binary, left: Closure, right: Closure) -> Closure:
    test, expected = _ORDERS[node.operator]

    def slow(frame: Frame, left_value: Value, right_value: Value) -> bool:
        try:
            return comparison.compare(frame, left_value, right_value) in expected
        except EvaluationFault as fault:
            fault.message = f"no such overload: {type_name(left_value)} {node.operator} {type_name(right_value)}"
            fault.blame(node)
            raise

    constant = _constant(node.right)
    if type(constant) is float or (type(constant) is int and abs(constant) <= _EXACT):
        as_double = float(constant)

        def ordered_number(frame: Frame) -> bool:
            value = left(frame)
            if type(value) is float:
                return test(value, as_double)
            return slow(frame, value, constant)

        return ordered_number

    def ordered(frame: Frame) -> bool:
        left_value, right_value = left(frame), right(frame)
        kind = type(left_value)
        if kind is type(right_value) and (kind is float or kind is int or (kind is str and len(left_value) < _SHORT)):
            return test(left_value, right_value)
        return slow(frame, left_value, right_value)

    return ordered


def _member(node: syntax.Binary, left: Closure, right: Closure) -> Closure:
    texts = _constant_texts(node.right)
    if texts is not None:

        def among(frame: Frame) -> bool:
            value = left(frame)
            return type(value) is str and value in texts

        return among

    def member(frame: Frame) -> bool:
        needle, hay = left(frame), right(frame)
        try:
            return comparison.contains(frame, needle, hay)
        except Failure as failure:
            failure.blame(node)
            raise

    return member


def chain(first: Closure, rest: list[tuple[syntax.Operand, Closure]]) -> Closure:
    """Arithmetic from left to right."""
    if len(rest) == 1:
        return _arithmetic(first, *rest[0])
    steps = [(part, arithmetic.OPERATIONS[part.operator], value) for part, value in rest]

    def run(frame: Frame) -> Value:
        total = first(frame)
        for part, operate, value in steps:
            other = value(frame)
            try:
                total = operate(frame, total, other)
            except Failure as failure:
                failure.blame(part)
                raise
        return total

    return run


_QUICK: dict[str, Callable[[Value, Value], Value]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def _arithmetic(left: Closure, part: syntax.Operand, right: Closure) -> Closure:
    operate = arithmetic.OPERATIONS[part.operator]
    quick = _QUICK.get(part.operator)

    def run(frame: Frame) -> Value:
        left_value, right_value = left(frame), right(frame)
        if quick is not None:
            kind = type(left_value)
            if kind is type(right_value):
                if kind is float:
                    return quick(left_value, right_value)
                if kind is int:
                    result = quick(left_value, right_value)
                    if INT_MIN <= result <= INT_MAX:
                        return result
        try:
            return operate(frame, left_value, right_value)
        except Failure as failure:
            failure.blame(part)
            raise

    return run


def negative(operand: Closure, node: Node) -> Closure:
    def run(frame: Frame) -> Value:
        value = operand(frame)
        try:
            return arithmetic.negate(value)
        except Failure as failure:
            failure.blame(node)
            raise

    return run


def _constant(node: Node) -> Value:
    return node.value if isinstance(node, syntax.Literal) else None


def _constant_texts(node: Node) -> frozenset[str] | None:
    """The short strings of a list literal that contains nothing else. For membership only: order does not matter."""
    if not isinstance(node, syntax.ListLiteral):
        return None
    texts = [_constant(element) for optional, element in node.elements if not optional]
    if len(texts) < len(node.elements) or any(type(text) is not str or len(text) >= _SHORT for text in texts):
        return None
    return frozenset(texts)
