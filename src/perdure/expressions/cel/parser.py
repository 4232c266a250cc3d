"""From tokens to a syntax tree: precedence climbing, with recovery at commas and closing brackets.

One pass reports every problem it can distinguish. Depth is bounded here, so that no later stage can recurse too far.
"""

from collections.abc import Callable
from typing import NoReturn

from msgspec.structs import replace

from perdure.expressions.cel import literals, syntax
from perdure.expressions.cel.cursor import ParseAborted, TokenCursor
from perdure.expressions.cel.macros import find_macro
from perdure.expressions.cel.syntax import Node
from perdure.expressions.cel.tokens import RESERVED, Token
from perdure.expressions.errors import SyntaxFault
from perdure.expressions.source import Source

_COMPARISON = 3
_PRECEDENCE = {
    **dict.fromkeys(("||",), 1),
    **dict.fromkeys(("&&",), 2),
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "in"), _COMPARISON),
    **dict.fromkeys(("+", "-"), 4),
    **dict.fromkeys(("*", "/", "%"), 5),
}
_LIST_WEIGHT, _MAP_WEIGHT = 8, 16  # creating one costs a loop as much as this many plain operations, mostly memory


def parse(source: Source, max_depth: int) -> Node:
    """The tree of a whole expression, or `SyntaxFault` with all problems."""
    parser = _Parser(source, max_depth)
    tree = parser.parse()
    if parser.findings:
        raise SyntaxFault(tuple(sorted(parser.findings, key=lambda finding: finding.position.offset)))
    return tree


class _Parser(TokenCursor):
    def __init__(self, source: Source, max_depth: int) -> None:
        super().__init__(source)
        self._max_depth = max_depth
        self._depth = 0

    def parse(self) -> Node:
        try:
            tree = self._expression()
            if self.peek() != "end":
                self.fail(f"unexpected {self.describe()}")
            return tree
        except ParseAborted:
            return syntax.Literal(0, 0, 1, 1, None)

    # Expressions, from loose to tight ------------------------------------------------------------------------------

    def _expression(self) -> Node:
        self._depth += 1
        if self._depth > self._max_depth:
            self._too_deep()
        node = self._binary(1)
        if self.accept("?"):
            then = self._binary(1)
            self.expect(":")
            otherwise = self._expression()
            node = syntax.Ternary(*self._measure(node.start, node, then, otherwise), node, then, otherwise)
        self._depth -= 1
        return node

    def _binary(self, loosest: int) -> Node:
        left = self._operand()
        while (precedence := _PRECEDENCE.get(self.peek(), 0)) >= loosest:
            token = self.take()
            if token.kind in ("&&", "||"):
                left = self._logical(left, token.kind, precedence)
            elif precedence > _COMPARISON:
                left = self._chain(left, token, precedence)
            else:
                right = self._binary(precedence + 1)
                left = syntax.Binary(*self._measure(left.start, left, right), token.kind, left, right, token.start)
        return left

    def _chain(self, first: Node, token: Token, precedence: int) -> Node:
        rest: list[syntax.Operand] = []
        while True:
            value = self._binary(precedence + 1)
            rest.append(syntax.Operand(first.start, value.end, token.start, token.kind, value))
            if _PRECEDENCE.get(self.peek(), 0) != precedence:
                break
            token = self.take()
        measures = self._measure(first.start, first, *(operand.value for operand in rest), weight=len(rest))
        return syntax.Chain(*measures, first, tuple(rest))

    def _logical(self, first: Node, operator: str, precedence: int) -> Node:
        terms = [first, self._binary(precedence + 1)]
        while self.accept(operator):
            terms.append(self._binary(precedence + 1))
        measures = self._measure(first.start, *terms)
        node_class = syntax.Conjunction if operator == "&&" else syntax.Disjunction
        return node_class(*measures, tuple(terms))

    def _operand(self) -> Node:
        """Unary operators, a primary, and everything attached to it."""
        signs = self._signs()
        node = self._primary()
        while self.peek() in (".", "[", "{"):
            node = self._postfix(node)
        for sign in reversed(signs):
            node = syntax.Unary(*self._measure(sign.start, node), sign.kind, node)
        return node

    def _signs(self) -> list[Token]:
        signs: list[Token] = []
        while self.peek() in ("!", "-"):
            if self.peek() == "-" and self.peek(1) in ("int", "double"):
                break  # belongs to the literal, so that the smallest int can be written
            signs.append(self.take())
            if signs[0].kind != signs[-1].kind:
                self.report(signs[-1].start, "`!` and `-` cannot be mixed without parentheses")
            if len(signs) > self._max_depth:
                self._too_deep()
        return signs

    def _primary(self) -> Node:
        token = self.take()
        match token.kind:
            case "(":
                inner = self._nested(")")
                self.expect(")")
                return replace(inner, start=token.start, end=self.end)
            case "[":
                return self._list(token)
            case "{":
                return self._map(token)
            case "name":
                return self._name(token, absolute=False)
            case ".":
                name = self.take()
                if name.kind != "name":
                    self.put_back()
                    self.fail(f"expected a name after `.`, not {self.describe()}")
                return self._name(name, absolute=True, start=token.start)
            case "true" | "false" | "null":
                return self._literal(token, {"true": True, "false": False, "null": None}[token.kind])
        return self._scalar(token)

    def _scalar(self, token: Token) -> Node:
        try:
            match token.kind:
                case "int":
                    return self._literal(token, literals.read_int(token.text, negative=False))
                case "uint":
                    return self._literal(token, literals.read_uint(token.text))
                case "double":
                    return self._literal(token, literals.read_double(token.text, negative=False))
                case "string":
                    return self._literal(token, literals.read_string(token.text))
                case "bytes":
                    return self._literal(token, literals.read_bytes(token.text))
                case "-":
                    number = self.take()
                    read_literal = literals.read_int if number.kind == "int" else literals.read_double
                    return syntax.Literal(token.start, number.end, 1, 1, read_literal(number.text, negative=True))
        except literals.BadLiteral as bad:
            self.report(token.start + bad.offset, str(bad))
            return self._literal(token, None)
        self.put_back()
        self.fail(f"expected an expression, not {self.describe()}")

    def _literal(self, token: Token, value: object) -> Node:
        return syntax.Literal(token.start, token.end, 1, 1 + (len(token.text) >> 10), value)

    def _name(self, token: Token, *, absolute: bool, start: int | None = None) -> Node:
        if token.text in RESERVED:
            self.report(token.start, f"`{token.text}` is a reserved word")
        start = token.start if start is None else start
        if self.peek() == "(":
            return self._call(start, token, None)
        return syntax.Name(start, token.end, 1, 1, token.text, absolute)

    # What follows a primary ------------------------------------------------------------------------------------------

    def _postfix(self, operand: Node) -> Node:
        opener = self.take()
        if opener.kind == "{":
            self.put_back()
            self.fail("message literals are not supported")
        optional = self.accept("?")
        if opener.kind == "[":
            key = self._nested("]")
            self.expect("]")
            return syntax.Index(*self._measure(operand.start, operand, key), operand, key, optional, opener.start)
        name = self.take()
        if name.kind == "name" and self.peek() == "(" and not optional:
            return self._call(operand.start, name, operand)
        if name.kind not in ("name", "quoted"):
            self.put_back()
            self.fail(f"expected a field name after `.`, not {self.describe()}")
        field = name.text.strip("`")
        return syntax.Select(*self._measure(operand.start, operand), operand, field, optional, name.start)

    def _call(self, start: int, name: Token, target: Node | None) -> Node:
        self.expect("(")
        args: list[Node] = []
        self._sequence(")", lambda: args.append(self._expression()))
        children = args if target is None else [target, *args]
        measures = self._measure(start, *children)
        expand = find_macro(name.text, target, len(args))
        if expand is not None:
            return expand(measures, target or args[0], tuple(args), self.report)
        return syntax.CallExpression(*measures, name.text, target, tuple(args), name.start)

    def _list(self, opener: Token) -> Node:
        elements: list[tuple[bool, Node]] = []
        self._sequence("]", lambda: elements.append((self.accept("?"), self._expression())))
        measures = self._measure(opener.start, *(node for _, node in elements), weight=_LIST_WEIGHT)
        return syntax.ListLiteral(*measures, tuple(elements))

    def _map(self, opener: Token) -> Node:
        entries: list[tuple[bool, Node, Node]] = []

        def entry() -> None:
            optional = self.accept("?")
            key = self._expression()
            self.expect(":")
            entries.append((optional, key, self._expression()))

        self._sequence("}", entry)
        children = [node for _, key, value in entries for node in (key, value)]
        return syntax.MapLiteral(*self._measure(opener.start, *children, weight=_MAP_WEIGHT), tuple(entries))

    # Brackets and recovery -------------------------------------------------------------------------------------------

    def _sequence(self, closer: str, item: Callable[[], None]) -> None:
        """Items between commas up to `closer`, which is consumed. A trailing comma is allowed in literals."""
        while not self.accept(closer):
            depth = self._depth
            try:
                item()
                if self.peek() not in (",", closer):
                    self.fail(f"expected `,` or `{closer}`, not {self.describe()}")
            except ParseAborted:
                self._depth = depth
                self.skip_to(closer)
            if self.accept(","):
                if closer == ")" and self.peek() == ")":
                    self.fail("expected an argument after `,`")
            elif self.peek() != closer:
                raise ParseAborted

    def _nested(self, closer: str) -> Node:
        depth = self._depth
        start = self.start
        try:
            return self._expression()
        except ParseAborted:
            self._depth = depth
            self.skip_to(closer)
            if self.peek() != closer:
                raise
            return syntax.Literal(start, start, 1, 1, None)

    def _measure(self, start: int, *children: Node, weight: int = 1) -> tuple[int, int, int, int]:
        height = 1 + max((child.height for child in children), default=0)
        if height > self._max_depth:
            self._too_deep()
        return start, self.end, height, weight + sum(child.size for child in children)

    def _too_deep(self) -> NoReturn:
        self.give_up(f"the expression is nested more than {self._max_depth} deep")
