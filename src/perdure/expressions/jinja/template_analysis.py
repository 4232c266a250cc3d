"""What a template reads and compares, more closely than `reads` tells; for `check`, never for a run."""

from collections.abc import Iterator
from typing import Any

import msgspec
from jinja2 import nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.parser import Parser

from perdure.expressions.jinja.environment import VALUES

Path = tuple[str, ...]


class TemplateAnalysis(msgspec.Struct):
    """`guarded` are the paths that the template asks for, or has a default for."""

    paths: set[Path] = msgspec.field(default_factory=set)
    guarded: set[Path] = msgspec.field(default_factory=set)
    equals: list[tuple[Path, Any]] = msgspec.field(default_factory=list)  # constants that a path is compared with

    def members(self, root: str) -> list[str]:
        """The members of a root that must exist."""
        return sorted({path[1] for path in self.paths - self.guarded if path[0] == root and len(path) > 1})


def analyse(text: str) -> TemplateAnalysis:
    """An empty analysis for a text that cannot be parsed."""
    analysis = TemplateAnalysis()
    try:
        _visit(Parser(VALUES, text).parse(), analysis)
    except (TemplateSyntaxError, RecursionError):
        return TemplateAnalysis()
    return analysis


def _visit(node: nodes.Node, analysis: TemplateAnalysis) -> None:
    path = _path(node)
    if path is not None:
        analysis.paths.add(path[:2])
        return
    children = list(node.iter_child_nodes())
    match node:
        case nodes.Filter(node=nodes.Node() as inner, name="default" | "d") if (guarded := _path(inner)) is not None:
            analysis.guarded.add(guarded[:2])
        case nodes.Test(node=inner, name="defined" | "undefined" | "none") if (guarded := _path(inner)) is not None:
            analysis.guarded.add(guarded[:2])
        case nodes.Compare(expr=left, ops=[nodes.Operand(op=operator, expr=right)]):
            analysis.equals += _comparisons(left, operator, right)
        case nodes.Call(node=nodes.Getattr(node=owner) as method):  # `ctx.get('x')` reads no member `get`
            children = [owner, *(child for child in children if child is not method)]
    for child in children:
        _visit(child, analysis)


def _path(node: nodes.Node) -> Path | None:
    """`a.b.c` and `a['b'].c` as a path of at least two parts; None for anything else."""
    parts: list[str] = []
    while True:
        match node:
            case nodes.Getattr(node=inner, attr=name):
                parts.append(name)
                node = inner
            case nodes.Getitem(node=inner, arg=nodes.Const(value=str(name))):
                parts.append(name)
                node = inner
            case nodes.Name(name=name) if parts:
                return (name, *reversed(parts))
            case _:
                return None


def _comparisons(left: nodes.Node, operator: str, right: nodes.Node) -> Iterator[tuple[Path, Any]]:
    if operator == "eq":
        for subject, other in ((left, right), (right, left)):
            if (path := _path(subject)) is not None and isinstance(other, nodes.Const):
                yield path, other.value
    elif operator == "in" and (path := _path(left)) is not None and isinstance(right, nodes.List | nodes.Tuple):
        yield from ((path, item.value) for item in right.items if isinstance(item, nodes.Const))
