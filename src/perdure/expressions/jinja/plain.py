"""Expressions that do not need Jinja: paths into data, constants, and comparisons of those, connected or negated.

While everything they name exists, they are computed directly. Where something is missing, or is not covered by these
few rules, `NotPlain` is raised, and Jinja is used: it handles what is undefined, what is forbidden, and the cost.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import nodes

Plain = Callable[[Mapping[str, Any]], Any]

_NUMBERS = frozenset({int, float})
_LONG = 10_000  # characters of a text whose comparison must be paid for
SCALARS = frozenset({str, int, float, bool, type(None)})
_DATA = SCALARS | {dict, list}
_EQUALITY: dict[str, Callable[[Any, Any], bool]] = {"eq": operator.eq, "ne": operator.ne}
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
}


class NotPlain(Exception):
    """Jinja is needed."""


def plain(node: nodes.Node) -> Plain | None:
    """A function that computes an expression without Jinja; None if Jinja is needed."""
    match node:
        case nodes.Const(value=value) if type(value) in SCALARS:
            return lambda roots: value
        case nodes.Compare(expr=left, ops=[nodes.Operand(op=sign, expr=right)]):
            return _both(left, right, lambda first, second: _comparing(sign, first, second))
        case nodes.And(left=left, right=right):
            return _both(left, right, lambda first, second: lambda roots: first(roots) and second(roots))
        case nodes.Or(left=left, right=right):
            return _both(left, right, lambda first, second: lambda roots: first(roots) or second(roots))
        case nodes.Not(node=inner):
            negated = plain(inner)
            return None if negated is None else lambda roots: not negated(roots)
    steps = _steps(node)
    return _reaching(steps) if steps else None


def _both(left: nodes.Node, right: nodes.Node, join: Callable[[Plain, Plain], Plain | None]) -> Plain | None:
    left_plan, right_plan = plain(left), plain(right)
    return None if left_plan is None or right_plan is None else join(left_plan, right_plan)


def _comparing(sign: str, left: Plain, right: Plain) -> Plain | None:
    if sign in _EQUALITY:
        return _equating(_EQUALITY[sign], left, right)
    return _ordering(_ORDER[sign], left, right) if sign in _ORDER else None


def _equating(compare: Callable[[Any, Any], bool], left: Plain, right: Plain) -> Plain:
    def answer(roots: Mapping[str, Any]) -> bool:
        left_value, right_value = left(roots), right(roots)
        kind = type(left_value)
        if kind in SCALARS and type(right_value) in SCALARS and not (kind is str and len(left_value) > _LONG):
            return compare(left_value, right_value)
        raise NotPlain

    return answer


def _ordering(compare: Callable[[Any, Any], bool], left: Plain, right: Plain) -> Plain:
    def answer(roots: Mapping[str, Any]) -> bool:
        left_value, right_value = left(roots), right(roots)
        kind = type(left_value)
        if (kind is str and type(right_value) is str and len(left_value) <= _LONG) or (
            kind in _NUMBERS and type(right_value) in _NUMBERS
        ):
            return compare(left_value, right_value)
        raise NotPlain

    return answer


def _steps(node: nodes.Node) -> tuple[str | int, ...]:
    """A path from its name on, if no member of it is computed; otherwise nothing."""
    steps: list[str | int] = []
    while not isinstance(node, nodes.Name):
        match node:
            case nodes.Getattr(attr=member):
                steps.append(member)
            case nodes.Getitem(arg=nodes.Const(value=member)) if type(member) in (str, int):
                steps.append(member)
            case _:
                return ()
        node = node.node
    return (node.name, *reversed(steps))


def _reaching(steps: tuple[str | int, ...]) -> Plain:
    def reach(roots: Mapping[str, Any]) -> Any:
        value: Any = roots
        for step in steps:
            if type(value) is list:
                if type(step) is not int or not 0 <= step < len(value):
                    raise NotPlain
            elif type(value) is not dict or step not in value:
                raise NotPlain
            value = value[step]
        if type(value) not in _DATA:
            raise NotPlain
        return value

    return reach
