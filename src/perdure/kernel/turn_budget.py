"""How much counted work a turn may do where it is being decided.

Expressions count the work they do. The engine gives a turn a budget on its event loop; a turn that exceeds it is
dropped (`TurnTooExpensive`) and decided again in a decision thread, so that it does not delay other runs. How much
an expression may cost in total is a separate limit, the same everywhere.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from typing import Self

STEPS_PER_MILLISECOND = 20_000  # one unit of work is about 50 nanoseconds on the machine on which prices were measured
FOR_A_CONSTANT = 2 * STEPS_PER_MILLISECOND  # to see what an expression is whatever the data are
_FEW = 64  # parts of a document that one move handles
_WORK_OF_COMPILING = 50  # a character of an expression
PORTION = STEPS_PER_MILLISECOND  # of work between two pauses, where there are any


class TurnTooExpensive(BaseException):
    """The turn has counted more work than it may do here. No dialect and no expression catches it."""


class TooMuchToCompare(Exception):
    """A value is too large, or the secrets that are looked for are too many, to be masked within the limit."""


class TooManySteps(Exception):
    """A text was made so that looking for a secret in it takes long."""


class TurnBudget:
    """The remaining budget of one turn; what is decided within it (`with effort:`) counts here.

    `rest` is called now and then, where other work may be waiting: it lets that run, and raises `TurnTooExpensive` when
    the decision has taken too long.
    """

    __slots__ = ("_before", "counts_compiling", "left", "rest")

    def __init__(self, left: int, rest: Callable[[], None] | None = None, *, counts_compiling: bool = False) -> None:
        self.left = left
        self.rest = rest
        self.counts_compiling = counts_compiling  # where the same can be begun anew elsewhere, with a larger budget

    def __enter__(self) -> Self:
        self._before: Token[TurnBudget | None] = current.set(self)
        return self

    def __exit__(self, *exit: object) -> None:
        current.reset(self._before)

    def allow(self, steps: int, price: int = 1) -> int:
        """How many of these steps an expression may make here, each of this many units of work.

        None begins once the budget is used up: one that is too short to count anything would never notice.
        """
        if self.left < 0:
            raise TurnTooExpensive("the turn exceeds its budget")
        if self.rest is not None:
            self.rest()
        allowed = self.left // price
        return allowed if allowed < steps else steps


current: ContextVar[TurnBudget | None] = ContextVar("effort", default=None)


def pay(work: int) -> None:
    """Charge for work outside expressions before it is done: large JSON, schemas, what is put beside the log."""
    effort = current.get()
    if effort is not None:
        effort.left -= work
        if effort.left < 0:
            raise TurnTooExpensive("the turn exceeds its budget")
        if effort.rest is not None:
            effort.rest()


def price_of_parts(count: int) -> int:
    """The work of copying a value of this many parts; few parts are not worth counting."""
    return 3 * count if count > _FEW else 0


def pay_for_each(count: int, work: int = 50) -> None:
    """Charge for as many parts, each of so much work; few are not worth counting."""
    if count > _FEW:
        pay(count * work)


@contextmanager
def at_most(work: int) -> Iterator[None]:
    """Inside, no more than this much work is done: else `TurnTooExpensive`. The budget around it, if any, pays."""
    around = current.get()
    budget = TurnBudget(work, None if around is None else around.rest)
    try:
        with budget:
            yield
    finally:
        if around is not None:
            around.left -= work - max(budget.left, 0)  # what was refused was not done


class GarbageCollection:
    """How Python's collector is kept from looking through large data while they are made; set by the engine."""

    paused: AbstractContextManager[None] = nullcontext()


def rest() -> None:
    """Between two pieces of large work: let others have their turn."""
    effort = current.get()
    if effort is not None and effort.rest is not None:
        effort.rest()


def begin_compiling(characters: int) -> None:
    """Before an expression is compiled, which is not given up however long it takes: it was accepted.

    On the event loop a turn pays for it; elsewhere others have their turn.
    """
    effort = current.get()
    if effort is None:
        return
    if effort.counts_compiling:
        pay(_WORK_OF_COMPILING * characters)
    elif effort.rest is not None:
        try:
            effort.rest()
        except TurnTooExpensive:
            pass


def rests() -> bool:
    """Whether others may be waiting for the work that is done here."""
    effort = current.get()
    return effort is not None and effort.rest is not None
