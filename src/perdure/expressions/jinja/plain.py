"""Expressions that need no Jinja: paths into data, constants, and comparisons of those, connected or negated.

While everything they name is there, they are calculated at once. Where something is missing, or is not what these few
rules know, the answer is `Unreached`, and Jinja is asked: it knows what is undefined, what is forbidden, what it costs.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import nodes

Plain = Callable[[Mapping[str, Any]], Any]

_NUMBERS = frozenset({int, float})
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
    """Jinja has to be asked."""


def plain(node: nodes.Node) -> Plain | None:
    """How to calculate an expression without Jinja; None where it is more than that."""
    match node:
        case nodes.Const(value=value) if type(value) in SCALARS:
            return lambda roots: value
        case nodes.Compare(expr=left, ops=[nodes.Operand(op=sign, expr=right)]):
            return _both(left, right, lambda one, other: _comparing(sign, one, other))
        case nodes.And(left=left, right=right):
            return _both(left, right, lambda one, other: lambda roots: one(roots) and other(roots))
        case nodes.Or(left=left, right=right):
            return _both(left, right, lambda one, other: lambda roots: one(roots) or other(roots))
        case nodes.Not(node=inner):
            negated = plain(inner)
            return None if negated is None else lambda roots: not negated(roots)
    steps = _steps(node)
    return _reaching(steps) if steps else None


def _both(left: nodes.Node, right: nodes.Node, join: Callable[[Plain, Plain], Plain | None]) -> Plain | None:
    one, other = plain(left), plain(right)
    return None if one is None or other is None else join(one, other)


def _comparing(sign: str, left: Plain, right: Plain) -> Plain | None:
    if sign in _EQUALITY:
        return _equating(_EQUALITY[sign], left, right)
    return _ordering(_ORDER[sign], left, right) if sign in _ORDER else None


def _equating(compare: Callable[[Any, Any], bool], left: Plain, right: Plain) -> Plain:
    def answer(roots: Mapping[str, Any]) -> bool:
        one, other = left(roots), right(roots)
        if type(one) in SCALARS and type(other) in SCALARS:
            return compare(one, other)
        raise NotPlain

    return answer


def _ordering(compare: Callable[[Any, Any], bool], left: Plain, right: Plain) -> Plain:
    def answer(roots: Mapping[str, Any]) -> bool:
        one, other = left(roots), right(roots)
        if type(one) is type(other) is str or (type(one) in _NUMBERS and type(other) in _NUMBERS):
            return compare(one, other)
        raise NotPlain

    return answer


def _steps(node: nodes.Node) -> tuple[str | int, ...]:
    """A path from its name on, if no member of it is calculated; otherwise nothing."""
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
