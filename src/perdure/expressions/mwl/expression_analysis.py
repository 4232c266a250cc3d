"""What an expression reads, and arithmetic that fails whatever the data are; for `check`, never for a run.

Every number in data is a double, and arithmetic does not mix kinds of numbers (MWL-121, MWL-122): `vars.n + 1` has no
meaning for any `vars.n`.
"""

from collections.abc import Mapping

import msgspec

from perdure.expressions.cel import syntax
from perdure.expressions.cel.checks import children
from perdure.expressions.cel.frame import DEFAULT_LIMITS
from perdure.expressions.cel.names import dotted_path
from perdure.expressions.cel.parser import parse
from perdure.expressions.cel.values import Uint
from perdure.expressions.errors import SyntaxFault
from perdure.expressions.source import Position, Source

Path = tuple[str, ...]

_DATA, _INT, _UINT, _DOUBLE, _STRING, _UNKNOWN = "data", "int", "uint", "double", "string", ""
_CONVERSIONS = {"size": _INT, "int": _INT, "uint": _UINT, "double": _DOUBLE, "string": _STRING}
_DESCRIPTIONS = {_INT: "an int", _UINT: "a uint", _DOUBLE: "a double", _STRING: "a string"}


class PathRead(msgspec.Struct, frozen=True):
    """`vars.order.id` is a read of the path `vars`, `order`, `id`."""

    path: Path
    position: Position


class FailingOperation(msgspec.Struct, frozen=True):
    message: str
    hint: str
    position: Position


class Analysis(msgspec.Struct):
    reads: list[PathRead] = msgspec.field(default_factory=list)
    tested: set[Path] = msgspec.field(default_factory=set)  # paths inside `has(…)`
    failing: list[FailingOperation] = msgspec.field(default_factory=list)


def analyse(body: str, roots: frozenset[str]) -> Analysis:
    """`roots` are the names in scope; a text that cannot be parsed has an empty analysis."""
    analysis = Analysis()
    source = Source(body)
    try:
        _Analyser(analysis, source, roots).kind(parse(source, DEFAULT_LIMITS.depth), {})
    except (SyntaxFault, RecursionError):
        return Analysis()
    return analysis


class _Analyser:
    """Visits every node once and returns its kind; `bound` has the kinds of the variables of macros."""

    def __init__(self, analysis: Analysis, source: Source, roots: frozenset[str]) -> None:
        self._analysis = analysis
        self._source = source
        self._roots = roots

    def kind(self, node: syntax.Node, bound: Mapping[str, str]) -> str:
        match node:
            case syntax.Literal(value=value):
                return _kind_of_literal(value)
            case syntax.Name() | syntax.Select():
                return self._path(node, bound)
            case syntax.Has():
                if (path := dotted_path(node.operand)) is not None:
                    self._analysis.tested.add((*path[0], node.field))
                self.kind(node.operand, bound)
            case syntax.Index():
                self.kind(node.key, bound)
                return _DATA if self.kind(node.operand, bound) == _DATA else _UNKNOWN
            case syntax.Unary(operator="-"):
                return self.kind(node.operand, bound)
            case syntax.Chain():
                return self._chain(node, bound)
            case syntax.Ternary():
                self.kind(node.condition, bound)
                then, otherwise = self.kind(node.then, bound), self.kind(node.otherwise, bound)
                return then if then == otherwise else _UNKNOWN
            case syntax.Loop():
                element = _DATA if self.kind(node.operand, bound) == _DATA else _UNKNOWN
                inner = {**bound, **dict.fromkeys(node.variables, element if len(node.variables) == 1 else _UNKNOWN)}
                for part in (node.condition, node.result):
                    if part is not None:
                        self.kind(part, inner)
                return _DATA if node.kind == "filter" and element else _UNKNOWN
            case syntax.Bind():
                return self.kind(node.result, {**bound, node.variable: self.kind(node.value, bound)})
            case syntax.OptionalMap():
                self.kind(node.operand, bound)
                self.kind(node.result, {**bound, node.variable: _UNKNOWN})
            case syntax.CallExpression():
                for part in (*((node.target,) if node.target is not None else ()), *node.args):
                    self.kind(part, bound)
                if node.target is None or node.function == "size":
                    return _CONVERSIONS.get(node.function, _UNKNOWN)
            case _:
                for part in children(node):
                    self.kind(part, bound)
        return _UNKNOWN

    def _path(self, node: syntax.Name | syntax.Select, bound: Mapping[str, str]) -> str:
        dotted = dotted_path(node)
        if dotted is None:
            assert isinstance(node, syntax.Select)
            return _DATA if self.kind(node.operand, bound) == _DATA else _UNKNOWN
        path, absolute = dotted
        if path[0] in bound and not absolute:
            return bound[path[0]]
        if path[0] not in self._roots:
            return _UNKNOWN
        self._analysis.reads.append(PathRead(path, self._source.position(node.start)))
        return _DATA

    def _chain(self, node: syntax.Chain, bound: Mapping[str, str]) -> str:
        left, left_kind = node.first, self.kind(node.first, bound)
        for operand in node.rest:
            right_kind = self.kind(operand.value, bound)
            if _always_fails(operand.operator, left_kind, right_kind):
                self._report(node, left, left_kind, operand, right_kind)
                return _UNKNOWN
            left_kind = _sum_kind(left_kind, right_kind)
        return left_kind

    def _report(
        self, node: syntax.Chain, left: syntax.Node, left_kind: str, operand: syntax.Operand, right_kind: str
    ) -> None:
        whole = self._source.fragment(node.start, operand.end)
        is_first = operand is node.rest[0]
        left_text = self._source.fragment(node.start, left.end if is_first else operand.focus).strip()
        right_text = self._source.fragment(operand.value.start, operand.value.end)
        if operand.operator == "%" and _DOUBLE in (_number(left_kind), _number(right_kind)):
            reason = "`%` takes ints, and a number in data is a double"
            hint = f"Convert: {_converted(left_text, left_kind)} % {_converted(right_text, right_kind)}."
        else:
            texts = {left_kind: left_text, right_kind: right_text}
            described = [
                "a number in data is a double" if kind == _DATA else f"{text} is {_DESCRIPTIONS[kind]}"
                for kind, text in texts.items()
            ]
            reason = " and ".join(described)
            data = left_text if left_kind == _DATA else right_text
            number = right_text if left_kind == _DATA else left_text
            hint = f"Convert one: double({number}), or int({data})." if _DATA in texts else "Convert one of the two."
            if _DATA in texts and number.isdigit():
                hint = f"Write {number}.0, or int({data})."
        self._analysis.failing.append(
            FailingOperation(f"`{whole}` always fails: {reason}", hint, self._source.position(operand.focus))
        )


def _kind_of_literal(value: object) -> str:
    if isinstance(value, Uint):
        return _UINT
    return {int: _INT, float: _DOUBLE, str: _STRING}.get(type(value), _UNKNOWN)


def _number(kind: str) -> str:
    return _DOUBLE if kind == _DATA else kind


def _converted(text: str, kind: str) -> str:
    if kind == _DATA:
        return f"int({text})"
    return text.removesuffix(".0") if kind == _DOUBLE else text


def _always_fails(operator: str, left: str, right: str) -> bool:
    """Only where no value of these kinds has a result; data may be a text or a list as well as a number."""
    if not left or not right:
        return False
    if operator == "%" and _DOUBLE in (_number(left), _number(right)):
        return True
    if left == right:
        return False
    numbers = {_INT, _UINT, _DOUBLE}
    if _DATA in (left, right):
        other = right if left == _DATA else left
        return other in (_INT, _UINT)
    return left in numbers or right in numbers


def _sum_kind(left: str, right: str) -> str:
    if left == right:
        return left
    return _DATA if {left, right} <= {_DATA, _DOUBLE, _STRING} else _UNKNOWN
