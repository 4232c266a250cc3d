"""How much counted work a turn may do where it is being decided.

Expressions count the work they do. The engine gives a turn a budget on its event loop; a turn that exceeds it is
dropped (`TurnTooExpensive`) and decided again in a decision thread, so that it does not delay other runs. How much
an expression may cost in total is a separate limit, the same everywhere.
"""

from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Self

STEPS_PER_MILLISECOND = 20_000  # one unit of work is about 50 nanoseconds on the machine that prices were measured on
PORTION = STEPS_PER_MILLISECOND  # of work that is done between two rests, where there are any


class TurnTooExpensive(BaseException):
    """The turn has counted more work than it may do here. No dialect and no expression catches it."""


class TurnBudget:
    """What is left for one turn; what is decided within it (`with effort:`) counts here.

    `rest` is called now and then, where work goes on that others may wait for: it lets them have their turn, and raises
    `TurnTooExpensive` when the decision has lasted too long.
    """

    __slots__ = ("_before", "left", "rest")

    def __init__(self, left: int, rest: Callable[[], None] | None = None) -> None:
        self.left = left
        self.rest = rest

    def __enter__(self) -> Self:
        self._before: Token[TurnBudget | None] = current.set(self)
        return self

    def __exit__(self, *exit: object) -> None:
        current.reset(self._before)

    def allow(self, steps: int, price: int = 1) -> int:
        """How many of these steps an expression may make here, each of them so many units of work."""
        if self.rest is not None:
            self.rest()
        allowed = self.left // price if self.left > 0 else 0
        return allowed if allowed < steps else steps


current: ContextVar[TurnBudget | None] = ContextVar("effort", default=None)


def pay(work: int) -> None:
    """Let work count that no expression does, before it is done: large JSON, schemas, what is put beside the log."""
    effort = current.get()
    if effort is not None:
        effort.left -= work
        if effort.left < 0:
            raise TurnTooExpensive("the turn exceeds its budget")
        if effort.rest is not None:
            effort.rest()


def rest() -> None:
    """Between two pieces of large work: let others have their turn."""
    effort = current.get()
    if effort is not None and effort.rest is not None:
        effort.rest()


def rests() -> bool:
    """Whether others may wait for the work that is done here."""
    effort = current.get()
    return effort is not None and effort.rest is not None
