"""What is known of a guard without data: which parts of it are decided, and which are the same or the opposite."""

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, nodes

from perdure.expressions.jinja.truth import is_true
from perdure.kernel.graphs.net import Formula, negation

_PLAIN = Environment(autoescape=False)

_OPPOSITES = {"ne": "eq", "notin": "in", "gteq": "lt", "gt": "lteq"}
_UNKNOWN = object()


def formula_of(source: str | bool, known: Mapping[str, Any]) -> Formula:
    """The guard as a formula. `known` has the values of paths such as `event.name`; every other read is an unknown."""
    if isinstance(source, bool):
        return source
    try:
        body = _PLAIN.parse(source).body
    except (TemplateSyntaxError, RecursionError):
        return source
    if len(body) == 1 and isinstance(body[0], nodes.Output) and len(body[0].nodes) == 1:
        return _formula(body[0].nodes[0], known)
    return source


def _formula(node: nodes.Node, known: Mapping[str, Any]) -> Formula:
    if isinstance(node, nodes.TemplateData):
        return is_true(node.data)
    if isinstance(node, nodes.Not):
        return negation(_formula(node.node, known))
    if isinstance(node, nodes.And | nodes.Or):
        operator = "and" if isinstance(node, nodes.And) else "or"
        return operator, (_formula(node.left, known), _formula(node.right, known))
    value = _value(node, known)
    if value is not _UNKNOWN:
        return is_true(value)
    if isinstance(node, nodes.Compare) and len(node.ops) == 1:
        operand = node.ops[0]
        opposite = _OPPOSITES.get(operand.op)
        text = f"{node.expr!r} {opposite or operand.op} {operand.expr!r}"
        return negation(text) if opposite else text
    return repr(node)


def _value(node: nodes.Node, known: Mapping[str, Any]) -> Any:
    """The value of an expression that reads only what is known."""
    if isinstance(node, nodes.Const):
        return node.value
    if isinstance(node, nodes.List | nodes.Tuple):
        items = [_value(item, known) for item in node.items]
        return _UNKNOWN if any(item is _UNKNOWN for item in items) else items
    if isinstance(node, nodes.Compare) and len(node.ops) == 1:
        return _compared(node.ops[0].op, _value(node.expr, known), _value(node.ops[0].expr, known))
    path = _path(node)
    return known.get(path, _UNKNOWN) if path else _UNKNOWN


def _compared(operator: str, left: Any, right: Any) -> Any:
    if left is _UNKNOWN or right is _UNKNOWN:
        return _UNKNOWN
    try:
        match operator:
            case "eq":
                return left == right
            case "ne":
                return left != right
            case "in":
                return left in right
            case "notin":
                return left not in right
            case "lt":
                return left < right
            case "lteq":
                return left <= right
            case "gt":
                return left > right
            case "gteq":
                return left >= right
    except TypeError:
        return _UNKNOWN
    return _UNKNOWN


def _path(node: nodes.Node) -> str:
    if isinstance(node, nodes.Name):
        return str(node.name)
    if isinstance(node, nodes.Getattr):
        inner = _path(node.node)
        return inner and f"{inner}.{node.attr}"
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        inner = _path(node.node)
        return inner and f"{inner}.{node.arg.value}"
    return ""
