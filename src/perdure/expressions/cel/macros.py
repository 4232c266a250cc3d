"""Macros: calls whose arguments are syntax, not values.

Each entry of the tables turns the call into its own kind of node. A call with a macro's name but another number of
arguments is an ordinary call; one with the right number but the wrong form is reported.
"""

from collections.abc import Callable

from perdure.expressions.cel import syntax
from perdure.expressions.cel.syntax import Node
from perdure.expressions.cel.tokens import Report

Measures = tuple[int, int, int, int]
Expansion = Callable[[Measures, Node, tuple[Node, ...], Report], Node]


def find_macro(function: str, target: Node | None, count: int) -> Expansion | None:
    if target is None:
        return _GLOBAL.get((function, count))
    if isinstance(target, syntax.Name) and not target.absolute and target.name == "cel":
        return _CEL.get((function, count))
    return _MEMBER.get((function, count))


def _has(measures: Measures, _: Node, args: tuple[Node, ...], report: Report) -> Node:
    tested = args[0]
    if not isinstance(tested, syntax.Select):
        report(tested.start, "has() takes a field selection such as has(a.b)")
        return tested
    operand = tested.operand
    return syntax.Has(*measures, operand, tested.field)


def _bind(measures: Measures, _: Node, args: tuple[Node, ...], report: Report) -> Node:
    return syntax.Bind(*measures, _variable(args[0], report), args[1], args[2])


def _optional_map(*, flat: bool) -> Expansion:
    def expand(measures: Measures, target: Node, args: tuple[Node, ...], report: Report) -> Node:
        return syntax.OptionalMap(*measures, target, _variable(args[0], report), args[1], flat)

    return expand


def _loop(kind: str, variables: int, *, condition: int | None = None, result: int | None = None) -> Expansion:
    """A comprehension: the first arguments are variables, the others are distinguished by position."""

    def expand(measures: Measures, target: Node, args: tuple[Node, ...], report: Report) -> Node:
        names = tuple(_variable(argument, report) for argument in args[:variables])
        if len(set(names)) < len(names):
            report(args[1].start, f"the variables of {kind}() must differ")
        return syntax.Loop(
            *measures,
            kind,
            target,
            names,
            None if condition is None else args[condition],
            None if result is None else args[result],
        )

    return expand


def _variable(node: Node, report: Report) -> str:
    if isinstance(node, syntax.Name) and not node.absolute:
        return node.name
    report(node.start, "expected a simple variable name here")
    return "_"


_GLOBAL: dict[tuple[str, int], Expansion] = {("has", 1): _has}
_CEL: dict[tuple[str, int], Expansion] = {("bind", 3): _bind}
_MEMBER: dict[tuple[str, int], Expansion] = {
    ("all", 2): _loop("all", 1, condition=1),
    ("all", 3): _loop("all", 2, condition=2),
    ("exists", 2): _loop("exists", 1, condition=1),
    ("exists", 3): _loop("exists", 2, condition=2),
    ("exists_one", 2): _loop("exists_one", 1, condition=1),
    ("exists_one", 3): _loop("exists_one", 2, condition=2),
    ("existsOne", 2): _loop("exists_one", 1, condition=1),
    ("existsOne", 3): _loop("exists_one", 2, condition=2),
    ("filter", 2): _loop("filter", 1, condition=1),
    ("map", 2): _loop("map", 1, result=1),
    ("map", 3): _loop("map", 1, condition=1, result=2),
    ("transformList", 3): _loop("map", 2, result=2),
    ("transformList", 4): _loop("map", 2, condition=2, result=3),
    ("transformMap", 3): _loop("map_values", 2, result=2),
    ("transformMap", 4): _loop("map_values", 2, condition=2, result=3),
    ("transformMapEntry", 3): _loop("map_entries", 2, result=2),
    ("transformMapEntry", 4): _loop("map_entries", 2, condition=2, result=3),
    ("sortBy", 2): _loop("sort_by", 1, result=1),
    ("optMap", 2): _optional_map(flat=False),
    ("optFlatMap", 2): _optional_map(flat=True),
}
