"""Templates that append to a value: `name.member + more`, `name.member ~ more`. Recognised when they are compiled.

The value may have a default: `name.member | default([])`, `name.get('member', [])`, `name.member or []`.
"""

from jinja2 import nodes

Held = tuple[str, str]
"""A name and its member."""


def find_growth(expression: nodes.Node) -> Held | None:
    """What the value of the expression begins with, if that is a list or a text."""
    match expression:
        case nodes.Add(left=nodes.Add() as left):
            return find_growth(left)
        case nodes.Add(left=left):
            return _member_of(left)
        case nodes.Concat(nodes=[first, *_]):
            return _member_of(first)
    return None


def find_added(expression: nodes.Expr) -> nodes.Expr:
    """What such an expression appends: `b + c` of `a + b + c`."""
    match expression:
        case nodes.Add(left=nodes.Add() as left, right=right):
            return nodes.Add(find_added(left), right, lineno=expression.lineno)
        case nodes.Add(right=right):
            return right
        case nodes.Concat(nodes=[_, *rest]):
            return nodes.Concat(rest, lineno=expression.lineno)
    raise ValueError("nothing is added")


def _member_of(node: nodes.Node) -> Held | None:
    match node:
        case nodes.Getattr(node=nodes.Name(name=name), attr=member):
            return name, member
        case nodes.Getitem(node=nodes.Name(name=name), arg=nodes.Const(value=str(member))):
            return name, member
        case nodes.Call(
            node=nodes.Getattr(node=nodes.Name(name=name), attr="get"), args=[nodes.Const(value=str(member)), *_]
        ):
            return name, member
        case nodes.Filter(name="default" | "d", node=nodes.Node() as inner):
            return _member_of(inner)
        case nodes.Or(left=left):
            return _member_of(left)
    return None
