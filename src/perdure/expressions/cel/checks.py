"""Checks without data: names out of scope, unknown functions, wrong numbers of arguments.

In CEL these are errors of evaluation (`unknown || true` is true), so a check reports and never refuses.
"""

from collections.abc import Iterable, Iterator

from perdure.expressions.cel import syntax
from perdure.expressions.cel.functions import Library
from perdure.expressions.cel.names import Scope, dotted_path, qualified_function
from perdure.expressions.cel.syntax import Node
from perdure.expressions.cel.values import type_denotations
from perdure.expressions.source import ExpressionProblem, Source


def check(tree: Node, source: Source, scope: Scope, library: Library) -> tuple[ExpressionProblem, ...]:
    """Every problem, in the order of the text."""
    problems = _Checker(scope, library).visit(tree, frozenset())
    return tuple(ExpressionProblem.at(source, offset, message) for offset, message in sorted(problems))


_Complaints = Iterator[tuple[int, str]]


class _Checker:
    def __init__(self, scope: Scope, library: Library) -> None:
        self._scope = scope
        self._library = library

    def visit(self, node: Node, bound: frozenset[str]) -> _Complaints:
        match node:
            case syntax.Name() | syntax.Select():
                yield from self._path(node, bound)
            case syntax.CallExpression():
                yield from self._call(node, bound)
            case syntax.Loop():
                yield from self.visit(node.operand, bound)
                inner = bound | set(node.variables)
                for child in (node.condition, node.result):
                    if child is not None:
                        yield from self.visit(child, inner)
            case syntax.Bind():
                yield from self.visit(node.value, bound)
                yield from self.visit(node.result, bound | {node.variable})
            case syntax.OptionalMap():
                yield from self.visit(node.operand, bound)
                yield from self.visit(node.result, bound | {node.variable})
            case _:
                for child in children(node):
                    yield from self.visit(child, bound)

    def _path(self, node: syntax.Name | syntax.Select, bound: frozenset[str]) -> _Complaints:
        dotted = dotted_path(node)
        if dotted is None:
            assert isinstance(node, syntax.Select)
            yield from self.visit(node.operand, bound)
            return
        path, absolute = dotted
        if path[0] in bound and not absolute:
            return
        if self._scope.find(path, absolute=absolute) is None and ".".join(path) not in type_denotations():
            candidates = (self._scope.names or frozenset()) | bound
            yield node.start, f"`{path[0]}` is not in scope{_guess(path[0], candidates)}"

    def _call(self, node: syntax.CallExpression, bound: frozenset[str]) -> _Complaints:
        qualified = qualified_function(node)
        function = self._library.functions.get(node.function if node.target is None else qualified or "")
        count = len(node.args)
        if node.target is not None and function is None:
            yield from self.visit(node.target, bound)
            function = self._library.methods.get(node.function)
            count += 1
        if function is None:
            named = self._library.functions if node.target is None else self._library.methods
            yield node.focus, f"there is no function `{node.function}`{_guess(node.function, named)}"
        elif not function.accepts(count):
            arities = " or ".join(str(arity - (count - len(node.args))) for arity in function.arities)
            yield node.focus, f"`{node.function}` takes {arities} arguments, not {len(node.args)}"
        for argument in node.args:
            yield from self.visit(argument, bound)


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case syntax.Has():
            return (node.operand,)
        case syntax.Index():
            return node.operand, node.key
        case syntax.Unary():
            return (node.operand,)
        case syntax.Binary():
            return node.left, node.right
        case syntax.Chain():
            return node.first, *(operand.value for operand in node.rest)
        case syntax.Conjunction() | syntax.Disjunction():
            return node.terms
        case syntax.Ternary():
            return node.condition, node.then, node.otherwise
        case syntax.ListLiteral():
            return tuple(element for _, element in node.elements)
        case syntax.MapLiteral():
            return tuple(child for _, key, value in node.entries for child in (key, value))
    return ()


_LONGEST_GUESSED = 100  # characters; functions and variables have no longer names


def _guess(name: str, candidates: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, sorted(candidates), n=1) if len(name) <= _LONGEST_GUESSED else []
    return f"; did you mean `{near[0]}`?" if near else ""
