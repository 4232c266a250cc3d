"""How much counted work a turn may do where it is being decided.

Expressions count what they do. The engine gives a turn some work to do on its event loop; a turn that counts more is
dropped whole (`TooDear`) and decided again elsewhere, so that it holds up no other run. What an expression may cost
altogether is another matter: that is decided by its own limits, the same everywhere.
"""

from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Self

STEPS_PER_MILLISECOND = 20_000  # one unit of work is about 50 nanoseconds on the machine that prices were measured on


class TooDear(BaseException):
    """The turn has counted more work than it may do here. No dialect and no expression catches it."""


class Effort:
    """What is left for one turn; what is decided within it (`with effort:`) counts here.

    `is_late` is asked whenever an expression begins: whether the decision has lasted too long.
    """

    __slots__ = ("_before", "_is_late", "left")

    def __init__(self, left: int, is_late: Callable[[], bool] | None = None) -> None:
        self.left = left
        self._is_late = is_late

    def __enter__(self) -> Self:
        self._before: Token[Effort | None] = current.set(self)
        return self

    def __exit__(self, *exit: object) -> None:
        current.reset(self._before)

    def allow(self, steps: int, price: int = 1) -> int:
        """How many of these steps an expression may make here, each of them so many units of work."""
        if self._is_late is not None and self._is_late():
            raise TooDear("the decision has lasted too long")
        return min(steps, max(self.left, 0) // price)


current: ContextVar[Effort | None] = ContextVar("effort", default=None)
