"""A pattern's tree to a Thompson automaton: instructions that accept a character, fork, assert or match."""

from dataclasses import dataclass, field

from perdure.expressions.regex import tree
from perdure.expressions.regex.charset import CharSet
from perdure.expressions.regex.errors import BadPattern


@dataclass(slots=True)
class Instruction:
    """Exactly one of `accepts`, `asserts` or neither (a fork). `to` holds the successors."""

    accepts: CharSet | None = None
    asserts: str | None = None
    to: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Automaton:
    """Starts at `start`; has matched when it reaches `MATCH`, instruction 0."""

    code: tuple[Instruction, ...]
    start: int
    has_assertions: bool


MATCH = 0


def build(pattern: tree.Tree) -> Automaton:
    if pattern.size > tree.LARGEST_PROGRAM:
        raise BadPattern("the pattern is too large")
    code = [Instruction()]
    start = _emit(code, pattern, MATCH)
    return Automaton(tuple(code), start, any(instruction.asserts for instruction in code))


def _emit(code: list[Instruction], part: tree.Tree, then: int) -> int:
    """Add instructions for `part` that go on to `then`; the index where they begin."""
    match part:
        case tree.Char(accepted=accepted):
            return _add(code, Instruction(accepts=accepted, to=[then]))
        case tree.Assertion(kind=kind):
            return _add(code, Instruction(asserts=kind, to=[then]))
        case tree.Sequence(parts=parts):
            for last in reversed(parts):
                then = _emit(code, last, then)
            return then
        case tree.Choice(branches=branches):
            return _add(code, Instruction(to=[_emit(code, branch, then) for branch in branches]))
        case tree.Repeat(inner=inner, fewest=fewest, most=most):
            return _emit_repeat(code, inner, fewest, most, then)


def _emit_repeat(code: list[Instruction], inner: tree.Tree, fewest: int, most: int | None, then: int) -> int:
    if most is None:
        fork = _add(code, Instruction(to=[then]))
        code[fork].to.append(_emit(code, inner, fork))
        then = fork
    else:
        for _ in range(most - fewest):
            then = _add(code, Instruction(to=[_emit(code, inner, then), then]))
            # each optional copy may also leave at once; leaving through the next copy's fork means the same
    for _ in range(fewest):
        then = _emit(code, inner, then)
    return then


def _add(code: list[Instruction], instruction: Instruction) -> int:
    code.append(instruction)
    return len(code) - 1
