"""Runs an automaton over a text: all threads at once, caching sets of threads as states of a lazy DFA.

A search costs what its thread sets cost, cached or not: the cache makes it faster, never cheaper, so that a budget runs
out at the same place in every process.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from perdure.expressions.regex import tree
from perdure.expressions.regex.charset import SMALL_RANGE, BadPattern, CharSet
from perdure.expressions.regex.parser import LARGEST_FOLDING, LONGEST, parse
from perdure.expressions.regex.tree import LARGEST_PROGRAM
from perdure.kernel.lazy_regex import lazy_regex

# A pattern's tree to a Thompson automaton: instructions that accept a character, fork, assert or match.


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
    """Add instructions for `part` that continue at `then`; the index where they begin."""
    match part:
        case tree.Char(accepted=accepted):
            return _add(code, Instruction(accepts=accepted, to=[then]))
        case tree.Assertion(kind=kind):
            return _add(code, Instruction(asserts=kind, to=[then]))
        case tree.Sequence(parts=parts):
            for last in reversed(parts):
                then = _emit(code, last, then)
            return then
        case tree.Alternation(branches=branches):
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


Charge = Callable[[int], None]

_REMEMBERED = 8_000  # threads and transitions cached per pattern; above that the cache is cleared
_LONGEST_CHUNK = 2048  # characters paid for together, and
_SPENT_AT_ONCE = 50_000  # what they may cost at most

# What is beside a position, as far as assertions need it.
_EDGE, _NEWLINE, _WORD, _OTHER = range(4)


class _State:
    """A set of threads waiting before a position, and what is before it."""

    __slots__ = ("before", "closures", "cost", "next", "threads")

    def __init__(self, threads: frozenset[int], before: int, cost: int) -> None:
        self.threads = threads
        self.before = before
        self.cost = cost
        self.next: dict[str, _State] = {}
        self.closures: dict[int, tuple[int, ...] | None] = {}


_MATCHED = _State(frozenset(), _EDGE, 0)


class Pattern:
    """A compiled pattern."""

    __slots__ = ("_automaton", "_chunk", "_room", "_states", "size")

    def __init__(self, automaton: Automaton) -> None:
        self.size = len(automaton.code)
        self._automaton = automaton
        self._states: dict[tuple[frozenset[int], int], _State] = {}
        self._room = _REMEMBERED
        self._chunk = min(_LONGEST_CHUNK, max(1, _SPENT_AT_ONCE // _price(self.size)))

    def search(self, text: str, charge: Charge) -> bool:
        """Whether the pattern matches anywhere in the text."""
        state = self._state(frozenset(), _EDGE)
        length = self._chunk
        for chunk in range(0, len(text), length):
            cost = 0
            for char in text[chunk : chunk + length]:
                cost += state.cost
                following = state.next.get(char)
                if following is None:
                    following = self._step(state, char)
                if following is _MATCHED:
                    charge(cost)
                    return True
                state = following
            charge(cost)
        charge(state.cost)
        return self._closure(state, _EDGE) is None

    def _step(self, state: _State, char: str) -> _State:
        beside = _kind(char) if self._automaton.has_assertions else _OTHER
        waiting = self._closure(state, beside)
        if waiting is None:
            following = _MATCHED
        else:
            code = self._automaton.code
            threads = frozenset(code[at].to[0] for at in waiting if char in code[at].accepts)  # type: ignore[operator]
            following = self._state(threads, beside)
        state.next[char] = following
        self._room -= 1
        return following

    def _state(self, threads: frozenset[int], before: int) -> _State:
        cached = self._states.get((threads, before))
        if cached is not None:
            return cached
        if self._room < 0:
            self._forget()
        state = _State(threads, before, self._cost(threads))
        self._states[threads, before] = state
        self._room -= len(threads) + 1
        return state

    def _forget(self) -> None:
        """States refer to each other in cycles, which are broken so that their memory is freed at once."""
        states, self._states = self._states, {}
        self._room = _REMEMBERED
        for state in list(states.values()):
            state.next = {}

    def _closure(self, state: _State, after: int) -> tuple[int, ...] | None:
        """The character instructions reachable from here, or None when a match is."""
        if after in state.closures:
            return state.closures[after]
        code = self._automaton.code
        waiting: list[int] = []
        stack = [*state.threads, self._automaton.start]
        seen = set(stack)
        result: tuple[int, ...] | None = None
        while stack:
            at = stack.pop()
            if at == MATCH:
                break
            instruction = code[at]
            if instruction.accepts is not None:
                waiting.append(at)
            elif instruction.asserts is None or _ASSERTIONS[instruction.asserts](state.before, after):
                fresh = [to for to in instruction.to if to not in seen]
                seen.update(fresh)
                stack += fresh
        else:
            result = tuple(waiting)
            self._room -= len(waiting)
        state.closures[after] = result
        return result

    def _cost(self, threads: frozenset[int]) -> int:
        """The price of one step from here, by the instructions that could be reached if every assertion were true."""
        code = self._automaton.code
        stack = [*threads, self._automaton.start]
        seen = set(stack)
        while stack:
            instruction = code[stack.pop()]
            if instruction.accepts is None:
                fresh = [to for to in instruction.to if to not in seen]
                seen.update(fresh)
                stack += fresh
        return _price(len(seen))


def _price(threads: int) -> int:
    return 2 + 8 * max(0, threads - 6)


def price_of_compiling(pattern: str) -> int:
    """In steps, by the size of the pattern with repetitions and case-insensitive characters expanded.

    A pattern that is too long costs nothing: it is refused without being read.
    """
    return _expanded(pattern) if len(pattern) <= LONGEST else 0


@lru_cache(maxsize=256)
def _expanded(pattern: str) -> int:
    each = len(pattern)
    of_groups = 1
    for match in _REPEATED.finditer(pattern):
        count = min(int(match[2][:6]), LARGEST_PROGRAM)
        if match[1]:
            of_groups = min(of_groups * max(count, 1), LARGEST_PROGRAM)
        else:
            each += count
    price = 100 + 30 * len(pattern)
    if each * of_groups > len(pattern):
        price += 20 * min(each * of_groups, LARGEST_PROGRAM)
    if _FOLDS.search(pattern) is None:
        return price
    return price + 120 * len(pattern) + 20 * min(_width(pattern), LARGEST_FOLDING)


_REPEATED = lazy_regex(r"(\))?\{(?:[0-9]*,)?([0-9]+),?\}")
_FOLDS = lazy_regex(r"\(\?[a-zA-Z]*i")
_CHARACTER = r"\\x\{[0-9A-Fa-f]{1,8}\}|\\x[0-9A-Fa-f]{2}|\\[0-7]{1,3}|\\.|[^\\]"
_BETWEEN = lazy_regex(rf"({_CHARACTER})-(?=({_CHARACTER}))", re.DOTALL)


def _width(pattern: str) -> int:
    """How many characters are in ranges, as far as they are folded one by one."""
    return sum(min(max(_code(high) - _code(low), 0), SMALL_RANGE) + 1 for low, high in _BETWEEN.findall(pattern))


def _code(text: str) -> int:
    if text[:2] == "\\x":
        return int(text[2:].strip("{}"), 16)
    if text[:1] == "\\" and text[1:].isdecimal():
        return int(text[1:], 8)
    return ord(text[-1])


def compile_pattern(pattern: str) -> Pattern:
    """The pattern, ready to search. Raises `BadPattern`."""
    if len(pattern) > LONGEST:  # even to look for it among those that are known would take long
        raise BadPattern(f"it is longer than {LONGEST} characters")
    return _compiled(pattern)


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> Pattern:
    return Pattern(build(parse(pattern)))


def _kind(char: str) -> int:
    if char == "\n":
        return _NEWLINE
    return _WORD if char == "_" or (char < "\x80" and char.isalnum()) else _OTHER


_ASSERTIONS: dict[str, Callable[[int, int], bool]] = {
    "begin_text": lambda before, after: before == _EDGE,
    "end_text": lambda before, after: after == _EDGE,
    "begin_line": lambda before, after: before in (_EDGE, _NEWLINE),
    "end_line": lambda before, after: after in (_EDGE, _NEWLINE),
    "word": lambda before, after: (before == _WORD) != (after == _WORD),
    "not_word": lambda before, after: (before == _WORD) == (after == _WORD),
}
