"""Parses a whole template into blocks. What is inside the braces is parsed by `pipelines`."""

from perdure.expressions.gotemplate.budget import Limits
from perdure.expressions.gotemplate.cursor import TokenCursor
from perdure.expressions.gotemplate.pipelines import PipelineParser
from perdure.expressions.gotemplate.syntax import (
    ActionNode,
    Block,
    ConditionNode,
    LoopControl,
    Pipeline,
    Range,
    Statement,
    Text,
    Tree,
)
from perdure.expressions.gotemplate.tokens import Token
from perdure.expressions.source import Source

_INCLUSION = frozenset({"define", "template", "block"})


def parse(source: Source, limits: Limits, bare_roots: frozenset[str]) -> Tree:
    """The template as a tree. Raises `SyntaxFault` at the first error."""
    return _BlockParser(TokenCursor(source, limits), bare_roots).parse()


class _BlockParser:
    __slots__ = ("_cursor", "_loops", "_pipelines")

    def __init__(self, cursor: TokenCursor, bare_roots: frozenset[str]) -> None:
        self._cursor = cursor
        self._pipelines = PipelineParser(cursor, bare_roots)
        self._loops = 0

    def parse(self) -> Tree:
        body = self._block()
        if self._cursor.current.kind != "eof":
            stray = self._cursor.following
            raise self._cursor.refuse(stray.start, f"this `{stray.text}` does not belong to any block")
        return Tree(body, self._pipelines.variables.slots)

    def _block(self) -> Block:
        """Statements up to the end of the text, or up to the `{{` of an `else` or `end`."""
        cursor = self._cursor
        statements: list[Statement] = []
        while cursor.current.kind != "eof" and cursor.following.kind not in ("else", "end"):
            token = cursor.advance()
            if token.kind == "text":
                statements.append(Text(token.start, token.end, token.text))
            else:
                statements.append(self._statement(token))
        return tuple(statements)

    def _statement(self, opening: Token) -> Statement:
        cursor = self._cursor
        keyword = cursor.current
        if keyword.kind in _INCLUSION:
            raise cursor.refuse(keyword.start, f"template inclusion is not allowed: `{keyword.text}`")
        match keyword.kind:
            case "if" | "with":
                return self._choice(opening)
            case "range":
                return self._range(opening)
            case "break" | "continue":
                return self._leave(opening)
        pipeline = self._pipelines.parse("action")
        self._close("action")
        return ActionNode(opening.start, cursor.previous.end, pipeline)

    def _choice(self, opening: Token) -> ConditionNode:
        cursor = self._cursor
        keyword = cursor.current.kind
        mark = self._enter()
        arms: list[tuple[Pipeline, Block]] = []
        otherwise: Block = ()
        while True:
            cursor.advance()
            condition = self._pipelines.parse(keyword)
            self._close(keyword)
            arms.append((condition, self._scoped_block()))
            if self._end_of_arm(opening, keyword) == "end":
                break
            if cursor.current.kind == keyword:
                continue
            self._close("else")
            otherwise = self._scoped_block()
            if self._end_of_arm(opening, keyword) == "else":
                raise cursor.refuse(cursor.previous.start, f"this {keyword} has a second else")
            break
        self._close("end")
        self._leave_scope(mark)
        return ConditionNode(opening.start, cursor.previous.end, keyword, tuple(arms), otherwise)

    def _range(self, opening: Token) -> Range:
        cursor = self._cursor
        mark = self._enter()
        cursor.advance()
        pipeline = self._pipelines.parse("range", most_declared=2)
        self._close("range")
        self._loops += 1
        body = self._scoped_block()
        self._loops -= 1
        otherwise: Block = ()
        if self._end_of_arm(opening, "range") == "else":
            self._close("else")
            otherwise = self._scoped_block()
            if self._end_of_arm(opening, "range") == "else":
                raise cursor.refuse(cursor.previous.start, "this range has a second else")
        self._close("end")
        self._leave_scope(mark)
        return Range(opening.start, cursor.previous.end, pipeline, body, otherwise)

    def _leave(self, opening: Token) -> LoopControl:
        keyword = self._cursor.advance()
        if self._loops == 0:
            raise self._cursor.refuse(keyword.start, f"`{keyword.text}` is outside of any range")
        self._close(keyword.text)
        return LoopControl(opening.start, self._cursor.previous.end, keyword.text)

    def _end_of_arm(self, opening: Token, keyword: str) -> str:
        """Move to what follows `{{ else` or `{{ end`, and return which of them it was."""
        cursor = self._cursor
        if cursor.current.kind == "eof":
            raise cursor.refuse(opening.start, f"this {keyword} is not closed: `{{{{ end }}}}` is missing")
        cursor.advance()
        return cursor.advance().kind

    def _close(self, keyword: str) -> None:
        self._cursor.expect("close", f"this {keyword} must end with `}}}}`")

    def _enter(self) -> int:
        self._cursor.enter()
        return self._pipelines.variables.mark()

    def _leave_scope(self, mark: int) -> None:
        self._cursor.leave()
        self._pipelines.variables.forget(mark)

    def _scoped_block(self) -> Block:
        mark = self._pipelines.variables.mark()
        block = self._block()
        self._pipelines.variables.forget(mark)
        return block
