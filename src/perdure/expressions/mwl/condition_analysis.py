"""What is known of a condition without data: which parts of it are constant, and which are the same or the opposite."""

from typing import Any

from perdure.expressions.cel import syntax
from perdure.expressions.cel.checks import children
from perdure.expressions.cel.frame import DEFAULT_LIMITS
from perdure.expressions.cel.parser import parse
from perdure.expressions.errors import SyntaxFault
from perdure.expressions.mwl.expression import ExpressionFault, compile_expression
from perdure.expressions.source import Source
from perdure.kernel.graphs.net import Formula, negation
from perdure.kernel.turn_budget import FOR_A_CONSTANT, TurnTooExpensive, at_most

_OPPOSITES = {"!=": "==", ">=": "<", ">": "<="}
_ROUNDS = 1_000  # that are tried to see whether a counter ends a loop
_WORK_OF_ROUNDS = 10 * FOR_A_CONSTANT  # all together


def formula_of(body: str, roots: frozenset[str]) -> Formula:
    """The condition as a formula; a part that reads data is an unknown, named by its text."""
    try:
        return _formula(parse(Source(body), DEFAULT_LIMITS.depth), body, roots)
    except (SyntaxFault, RecursionError):
        return body


def _formula(node: syntax.Node, body: str, roots: frozenset[str]) -> Formula:
    match node:
        case syntax.Unary(operator="!"):
            return negation(_formula(node.operand, body, roots))
        case syntax.Conjunction():
            return "and", tuple(_formula(term, body, roots) for term in node.terms)
        case syntax.Disjunction():
            return "or", tuple(_formula(term, body, roots) for term in node.terms)
    text = body[node.start : node.end]
    if not _reads(node):
        try:
            with at_most(FOR_A_CONSTANT):
                return compile_expression(text, roots).holds({})
        except (ExpressionFault, TurnTooExpensive):
            return text
    if isinstance(node, syntax.Binary) and node.operator in _OPPOSITES:
        left, right = body[node.left.start : node.left.end], body[node.right.start : node.right.end]
        return negation(f"{_plain(left)} {_OPPOSITES[node.operator]} {_plain(right)}")
    if isinstance(node, syntax.Binary):
        left, right = body[node.left.start : node.left.end], body[node.right.start : node.right.end]
        return f"{_plain(left)} {node.operator} {_plain(right)}"
    return _plain(text)


def _plain(text: str) -> str:
    return " ".join(text.split())


def _reads(node: syntax.Node) -> bool:
    """Whether it reads data or calls a function that may read the clock."""
    if isinstance(node, syntax.Name | syntax.CallExpression):
        return True
    return any(_reads(child) for child in children(node))


def rounds_of(body: str, roots: frozenset[str], counter: tuple[str, ...]) -> int | None:
    """After how many rounds a counter makes the condition false; 0: it is never true; None: never, or the data decide.

    Every round counts one up, from one.
    """
    try:
        tree = parse(Source(body), DEFAULT_LIMITS.depth)
    except (SyntaxFault, RecursionError):
        return None
    terms = tree.terms if isinstance(tree, syntax.Conjunction) else (tree,)
    limits = [_limit(body[term.start : term.end], roots, counter) for term in terms]
    known = [limit for limit in limits if limit is not None]
    return min(known, default=None)


def _limit(text: str, roots: frozenset[str], counter: tuple[str, ...]) -> int | None:
    expression = compile_expression(text, roots)
    try:
        with at_most(_WORK_OF_ROUNDS):
            for number in range(1, _ROUNDS):
                data: Any = float(number)
                for name in reversed(counter):
                    data = {name: data}
                if not expression.holds(data):
                    return number - 1
    except (ExpressionFault, TurnTooExpensive):
        return None
    return None
