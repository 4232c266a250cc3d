"""A parsed template, made safe to compile: every operation gets a price, and what is not allowed is refused.

Jinja compiles operators, loops and calls to plain Python. This module replaces them, before they are compiled, by
filters whose names no template can write; those are in `environment`.
"""

# ruff: noqa: N802  # the visitor finds its methods by these names

from collections.abc import Iterator
from typing import Any

from jinja2 import Environment, nodes
from jinja2.visitor import NodeTransformer

from perdure.expressions.jinja.budget import Limits
from perdure.expressions.jinja.errors import LimitExceeded, SyntaxFault

_REFUSED: dict[type[nodes.Node], str] = {
    nodes.Extends: "extends",
    nodes.Include: "include",
    nodes.Import: "import",
    nodes.FromImport: "import",
    nodes.Block: "block",
    nodes.ScopedEvalContextModifier: "autoescape",
    nodes.EvalContextModifier: "autoescape",
}


class RefusedNode(Exception):
    """Carries a refusal together with the node it is about."""

    def __init__(self, refusal: SyntaxFault | LimitExceeded, node: nodes.Node) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
        self.node = node


def inspect(tree: nodes.Template, limits: Limits) -> int:
    """Refuse what is too large, nested too deeply or not supported, by `RefusedNode`; else the number of parts."""
    count = 0
    waiting: list[tuple[nodes.Node, int]] = [(tree, 0)]
    while waiting:
        node, level = waiting.pop()
        count += 1
        if level > limits.depth:
            raise RefusedNode(LimitExceeded(f"the template is nested deeper than {limits.depth}"), node)
        if count > limits.nodes:
            raise RefusedNode(LimitExceeded(f"the template has more than {limits.nodes} parts"), node)
        if type(node) in _REFUSED:
            feature = _REFUSED[type(node)]
            raise RefusedNode(SyntaxFault(f"`{feature}` does not exist in these templates"), node)
        if isinstance(node, nodes.Name) and node.name in ("self", "super"):
            raise RefusedNode(SyntaxFault(f"`{node.name}` does not exist in these templates"), node)
        waiting.extend((child, level + 1) for child in node.iter_child_nodes())
    return count


def rewrite(tree: nodes.Template, environment: Environment) -> nodes.Template:
    """The same template with every operation metered."""
    metered = (_Tracing() if getattr(environment, "traces", False) else _Metering()).visit(tree)
    metered.set_environment(environment)
    return metered  # type: ignore[no-any-return]


class _Metering(NodeTransformer):
    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:
        return nodes.Const(node.data, lineno=node.lineno)  # text of the template is output, too

    def visit_For(self, node: nodes.For) -> nodes.Node:
        weight = sum(map(_count, node.body)) + (_count(node.test) if node.test else 0) + 1
        self.generic_visit(node)
        if node.recursive:  # deeper levels do not call `iter` again, so every iteration pays for itself
            node.body.insert(0, _toll(weight, node.lineno))
            weight = 0
        node.iter = _metered("iterate", node.iter, [nodes.Const(weight)])
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        weight = sum(map(_count, node.body)) + 1
        self.generic_visit(node)
        node.body.insert(0, _toll(weight, node.lineno))
        return node

    def visit_Call(self, node: nodes.Call) -> nodes.Node:
        self.generic_visit(node)
        callee = node.node
        if not isinstance(callee, nodes.Getattr):
            return node
        name = nodes.Const(callee.attr)
        metered = _metered("method", callee.node, [name, *node.args], lineno=node.lineno)
        metered.kwargs = node.kwargs  # type: ignore[assignment]  # Jinja says pairs and means keywords
        metered.dyn_args, metered.dyn_kwargs = node.dyn_args, node.dyn_kwargs
        return metered

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        weight = sum(map(_count, node.body)) + 1
        called = node.call
        self.generic_visit(called)  # its arguments only: the call must stay a call, because the block is passed to it
        node.call = nodes.Const(None)  # type: ignore[assignment]
        self.generic_visit(node)
        node.call = called
        node.body.insert(0, _toll(weight, node.lineno))
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        links = [part for operand in node.ops for part in (nodes.Const(operand.op), operand.expr)]
        return _metered("compare", node.expr, links)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _metered("concat", node.nodes[0], list(node.nodes[1:]))

    def visit_CondExpr(self, node: nodes.CondExpr) -> nodes.Node:
        self.generic_visit(node)
        if node.expr2 is None:
            node.expr2 = _metered("nothing", nodes.Const(None), [], lineno=node.lineno)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        bounds = [bound or nodes.Const(None) for bound in (node.arg.start, node.arg.stop, node.arg.step)]
        return _metered("slice", node.node, bounds)


class _Tracing(_Metering):
    """Reports names where they are used: Jinja looks all of them up at the beginning."""

    def visit_Name(self, node: nodes.Name) -> nodes.Node:
        return _metered("read", node, [nodes.Const(node.name)]) if node.ctx == "load" else node


def _toll(weight: int, lineno: int) -> nodes.Node:
    """The price of entering a body that may be entered repeatedly."""
    return nodes.ExprStmt(_metered("toll", nodes.Const(weight, lineno=lineno), []), lineno=lineno)


def _metered(name: str, value: Any, args: list[Any], lineno: int | None = None) -> nodes.Filter:
    metered = nodes.Filter(value, f"${name}", args, [], None, None, lineno=lineno or value.lineno)
    for arg in args:
        if arg.lineno is None:
            arg.lineno = metered.lineno
    return metered


def _count(node: nodes.Node) -> int:
    """How many parts there are. Keys of a mapping may be numbers whose hashes are the same (`Budget.charge_keys`)."""
    return sum(1 if not isinstance(part, nodes.Dict) else 1 + len(part.items) ** 2 // 16 for part in _walk(node))


def _walk(node: nodes.Node) -> Iterator[nodes.Node]:
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting.extend(current.iter_child_nodes())
