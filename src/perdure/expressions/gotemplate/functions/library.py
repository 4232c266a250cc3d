"""How a function is declared and called: which types it takes, and what it gets besides its arguments.

A function gets plain Python values of the types it declared. Storage references never reach one unnoticed (STY-203),
and both what it reads and what it creates is paid for.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec

from perdure.expressions.errors import EvaluationFault
from perdure.expressions.gotemplate.errors import NotJson
from perdure.expressions.gotemplate.frame import Frame
from perdure.expressions.gotemplate.instants import BadInstant, GoTime
from perdure.expressions.gotemplate.literals import INT_MAX, INT_MIN
from perdure.expressions.gotemplate.values import Value, describe, require_present
from perdure.expressions.gotemplate.versions import BadVersion

USUAL, SLOW = 3, 40  # steps for a call, besides what is paid by size
SHORT_CIRCUIT = frozenset({"and", "or"})  # these get expressions, not values: handled by the planner


class ArgumentKind(msgspec.Struct, frozen=True):
    """What an argument may be, and what to call it."""

    name: str
    types: tuple[type, ...]


ANY = ArgumentKind("anything", ())
TEXT = ArgumentKind("a string", (str,))
INTEGER = ArgumentKind("an integer", (int,))
BOOLEAN = ArgumentKind("a bool", (bool,))
LIST = ArgumentKind("a list", (list,))
MAP = ArgumentKind("a map", (dict,))
MOMENT = ArgumentKind("a time", (GoTime,))


class Function(msgspec.Struct, frozen=True):
    """`run` takes the frame first when `wants_frame`. `rest` is the kind of any further arguments."""

    run: Callable[..., Value]
    kinds: tuple[ArgumentKind, ...]
    rest: ArgumentKind | None = None
    wants_frame: bool = False
    takes_references: bool = False
    price: int = USUAL
    by_letter: bool = False  # looks at each character separately, which costs a step

    def call(self, frame: Frame, arguments: list[Value]) -> Value:
        self._check(arguments)
        budget = frame.budget
        size = 0
        for argument in arguments:
            if type(argument) is str:
                size += len(argument)
            elif type(argument) is list or type(argument) is dict:
                budget.charge_elements(len(argument))
        price = self.price * len(arguments) if self.rest is not None else self.price
        budget.charge(price + size if self.by_letter else price)
        budget.charge_text(size)
        try:
            result = self.run(frame, *arguments) if self.wants_frame else self.run(*arguments)
        except (BadInstant, BadVersion, NotJson) as problem:
            raise EvaluationFault(str(problem)) from None
        if type(result) is str:
            budget.charge_text(len(result))
        elif type(result) is list or type(result) is dict:
            budget.charge_elements(len(result))
        return result

    def _check(self, arguments: list[Value]) -> None:
        kinds, count = self.kinds, len(arguments)
        if count < len(kinds) or (count > len(kinds) and self.rest is None):
            least = "at least " if self.rest else ""
            noun = "argument" if len(kinds) == 1 else "arguments"
            raise EvaluationFault(f"it takes {least}{len(kinds)} {noun}, not {count}")
        for at, argument in enumerate(arguments):
            kind = kinds[at] if at < len(kinds) else self.rest
            if not self.takes_references:
                require_present(argument)
            if kind is INTEGER and type(argument) is float and argument.is_integer():
                arguments[at] = argument = int(argument)
            if kind is INTEGER and type(argument) is int and not INT_MIN <= argument <= INT_MAX:
                raise EvaluationFault(f"its argument {at + 1} has more than 64 bits")
            if kind is None or kind is ANY or type(argument) in kind.types:
                continue
            raise EvaluationFault(f"its argument {at + 1} must be {kind.name}, not {describe(argument)}")


def takes(
    run: Callable[..., Value], *kinds: ArgumentKind, rest: ArgumentKind | None = None, price: int = USUAL
) -> Function:
    return Function(run, kinds, rest, price=price)


def takes_letters(run: Callable[..., Value]) -> Function:
    """For a function of one text that looks at each of its characters."""
    return Function(run, (TEXT,), by_letter=True)


def takes_frame(run: Callable[..., Value], *kinds: ArgumentKind, rest: ArgumentKind | None = None) -> Function:
    """For a function that pays for its work itself, or needs the time."""
    return Function(run, kinds, rest, wants_frame=True)


_LONGEST_GUESSED = 100  # characters; no function has a longer name


@dataclass(frozen=True, eq=False, repr=False)
class Library:
    """The functions of one kind of template, and those it may not use, with the reason."""

    functions: Mapping[str, Function]
    denied: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def refuse(self, name: str) -> str | None:
        """Why a template may not call this function, or None if it may."""
        if name in self.functions or name in SHORT_CIRCUIT:
            return None
        return self.denied.get(name) or f"function {name!r} is not defined{self._guess(name)}"

    def _guess(self, name: str) -> str:
        plain = name.lower().replace("_", "")
        close: Sequence[str] = [candidate for candidate in self.functions if candidate.lower() == plain]
        if not close and len(name) <= _LONGEST_GUESSED:
            from difflib import get_close_matches

            close = get_close_matches(name, sorted(self.functions), n=1, cutoff=0.8)
        return f"; did you mean {close[0]!r}?" if close else ""
