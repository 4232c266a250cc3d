"""Parses what is inside one pair of braces: pipelines, commands, operands, and the variables they declare.

Story's additions to Go end here: a bare root such as `inputs` is read as `$.inputs` (STY-195), so it means the same in
every block, and subscripts such as `x['a-b'][0]` are steps of a path (STY-198).
"""

from perdure.expressions.gotemplate.cursor import TokenCursor
from perdure.expressions.gotemplate.literals import BadLiteral, read_character, read_number, read_quoted
from perdure.expressions.gotemplate.syntax import (
    ROOT_SLOT,
    CommandNode,
    Dot,
    Literal,
    Name,
    Nil,
    Operand,
    Path,
    Pipeline,
    Variable,
)
from perdure.expressions.gotemplate.tokens import Token

_ENDS_A_COMMAND = frozenset({"|", ")", "close"})
_CONSTANTS = {"true": True, "false": False}


class Variables:
    """Names in scope. Every declaration has a slot of its own; the innermost hides the others."""

    __slots__ = ("_declared", "_slots", "slots")

    def __init__(self) -> None:
        self._declared: list[str] = []
        self._slots: dict[str, list[int]] = {"$": [ROOT_SLOT]}
        self.slots = 1

    def declare(self, name: str) -> int:
        slot = self.slots
        self.slots += 1
        self._declared.append(name)
        self._slots.setdefault(name, []).append(slot)
        return slot

    def find(self, name: str) -> int | None:
        slots = self._slots.get(name)
        return slots[-1] if slots else None

    def mark(self) -> int:
        return len(self._declared)

    def forget(self, mark: int) -> None:
        """Leave the block that began at `mark`."""
        while len(self._declared) > mark:
            self._slots[self._declared.pop()].pop()


class PipelineParser:
    """Reads pipelines at the cursor."""

    __slots__ = ("_bare_roots", "_cursor", "variables")

    def __init__(self, cursor: TokenCursor, bare_roots: frozenset[str]) -> None:
        self._cursor = cursor
        self._bare_roots = bare_roots
        self.variables = Variables()

    def parse(self, keyword: str, most_declared: int = 1) -> Pipeline:
        """A pipeline up to, not including, `}}` or `)`."""
        cursor = self._cursor
        start = cursor.current.start
        names, declares = self._targets(keyword, most_declared)
        commands = [self._command(keyword)]
        while cursor.current.kind == "|":
            cursor.advance()
            commands.append(self._command(keyword))
            self._check_stage(commands[-1], len(commands))
        # The variables exist only after the pipeline that fills them: `$x := $x` reads the outer one.
        slots = tuple(self.variables.declare(name.text) if declares else self._slot(name) for name in names)
        return Pipeline(start, commands[-1].end, tuple(commands), slots, declares)

    def _targets(self, keyword: str, most: int) -> tuple[list[Token], bool]:
        cursor = self._cursor
        names: list[Token] = []
        while cursor.current.kind == "variable" and cursor.following.kind in (":=", "=", ","):
            names.append(cursor.advance())
            if len(names) > most:
                raise cursor.refuse(names[-1].start, f"too many variables are declared in this {keyword}")
            if cursor.current.kind != ",":
                return names, cursor.advance().kind == ":="
            cursor.advance()
            if cursor.current.kind != "variable":
                raise cursor.refuse_current("after the comma there must be a variable")
        if names:
            raise cursor.refuse_current("the variables must be followed by `:=` or `=`")
        return names, False

    def _check_stage(self, command: CommandNode, stage: int) -> None:
        if isinstance(command.operands[0], Literal | Nil | Dot):
            raise self._cursor.refuse(command.start, f"stage {stage} of this pipeline is not a function")

    def _command(self, keyword: str) -> CommandNode:
        cursor = self._cursor
        if cursor.current.kind in _ENDS_A_COMMAND:
            raise cursor.refuse_current(f"a value is missing for this {keyword}")
        operands = [self._operand()]
        while cursor.current.kind not in _ENDS_A_COMMAND:
            if not cursor.current.spaced:
                raise cursor.refuse_current("there must be a space, `|` or the end of the action")
            operands.append(self._operand())
        return CommandNode(operands[0].start, operands[-1].end, tuple(operands))

    def _operand(self) -> Operand:
        token = self._cursor.current
        receiver = self._term()
        steps = self._steps()
        if token.kind == "field":
            receiver, steps = Dot(token.start, token.start + 1), (token.text[1:], *steps)
        elif token.kind == "name" and token.text in self._bare_roots:
            receiver, steps = Variable(token.start, token.end, "$", ROOT_SLOT), (token.text, *steps)
        if not steps:
            return receiver
        if isinstance(receiver, Literal | Nil):
            raise self._cursor.refuse(token.start, "a constant has no fields")
        return Path(token.start, self._cursor.previous.end, receiver, steps)

    def _term(self) -> Operand:
        cursor = self._cursor
        token = cursor.current
        start, end = token.start, token.end
        match token.kind:
            case "(":
                return self._parenthesised()
            case "." | "field":
                term: Operand = Dot(start, end)
            case "variable":
                term = Variable(start, end, token.text, self._slot(token))
            case "name" if token.text == "nil":
                term = Nil(start, end)
            case "name" if token.text in _CONSTANTS:
                term = Literal(start, end, _CONSTANTS[token.text])
            case "name":
                term = Name(start, end, token.text)
            case "number" | "char" | "string" | "raw":
                term = Literal(start, end, self._constant(token))
            case _:
                raise cursor.refuse_current("a value is expected here")
        cursor.advance()
        return term

    def _parenthesised(self) -> Pipeline:
        cursor = self._cursor
        start = cursor.advance().start
        cursor.enter()
        inner = self.parse("pair of parentheses")
        end = cursor.expect(")", "this must be `)`").end
        cursor.leave()
        return Pipeline(start, end, inner.commands, inner.slots, inner.declares)

    def _steps(self) -> tuple[str | int, ...]:
        """The fields and subscripts that follow without a space."""
        cursor = self._cursor
        steps: list[str | int] = []
        while not cursor.current.spaced:
            match cursor.current.kind:
                case "field":
                    steps.append(cursor.advance().text[1:])
                case "[":
                    cursor.advance()
                    steps.append(self._subscript())
                    cursor.expect("]", "a subscript ends with `]`")
                case _:
                    break
        return tuple(steps)

    def _subscript(self) -> str | int:
        cursor = self._cursor
        token = cursor.current
        if token.kind not in ("number", "char", "string", "raw"):
            raise cursor.refuse_current("a subscript is a quoted key or a number; use `index` for anything else")
        value = self._quoted(token) if token.kind == "char" else self._constant(token)
        if isinstance(value, float) or (isinstance(value, int) and value < 0):
            raise cursor.refuse_current("a number in a subscript is 0, 1, 2, …")
        cursor.advance()
        return value

    def _constant(self, token: Token) -> int | float | str:
        try:
            match token.kind:
                case "number":
                    return read_number(token.text)
                case "char":
                    return read_character(token.text)
                case "raw":
                    return token.text[1:-1].replace("\r", "")
        except BadLiteral as bad:
            raise self._cursor.refuse(token.start, str(bad)) from None
        return self._quoted(token)

    def _quoted(self, token: Token) -> str:
        try:
            return read_quoted(token.text)
        except BadLiteral as bad:
            raise self._cursor.refuse(token.start, str(bad)) from None

    def _slot(self, token: Token) -> int:
        slot = self.variables.find(token.text)
        if slot is None:
            raise self._cursor.refuse(token.start, f"the variable {token.text} is not declared here")
        return slot
