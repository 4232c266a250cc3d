"""What one template may use, and the budget it pays from. Counts operations, not seconds: the same everywhere.

A step is about one operation; work that grows with its operands pays in proportion, before it is done.
"""

import msgspec

from perdure.expressions.errors import LimitExceeded
from perdure.kernel.turn_budget import PORTION, TurnTooExpensive, current, rest


class Limits(msgspec.Struct, frozen=True):
    """Limits of one rendering: about a second and a hundred megabytes."""

    source: int = 1_048_576  # characters of text
    words: int = 100_000  # names, constants and symbols, and the texts between actions
    depth: int = 100  # nesting of blocks and parentheses
    steps: int = 2_000_000  # operations, approximately; implements the evaluation timeout (STY-204)
    size: int = 4_000_000  # characters or elements of any one created value
    output: int = 65_536  # bytes written by one template (STY-204)


DEFAULT_LIMITS = Limits()
_WORK_OF_A_STEP = 10
_PORTION = PORTION // _WORK_OF_A_STEP  # steps between two pauses
CHARACTERS_PER_STEP = 8  # text is cheaper than an operation; a step also covers the 50 bytes that it may create


class Budget:
    """The remaining budget of one rendering."""

    __slots__ = ("_given", "_later", "_limits", "_steps", "_work")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._work = current.get()
        self._steps = self._given = limits.steps
        self._later = 0
        if self._work is not None:
            self._steps = self._given = self._work.allow(limits.steps, _WORK_OF_A_STEP)
            if self._work.rest is not None and self._given > _PORTION:
                self._steps, self._later = _PORTION, self._given - _PORTION

    def settle(self) -> None:
        """The rendering has ended: charge its work to the turn."""
        if self._work is not None:
            self._work.left -= _WORK_OF_A_STEP * (self._given - self._steps - self._later)

    def charge(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0:
            self._go_on()

    def _go_on(self) -> None:
        """Continue with some of the steps that were set aside, if there are any."""
        rest()
        more = min(self._later, max(_PORTION, -self._steps))
        self._later -= more
        self._steps += more
        if self._steps < 0:
            if self._given < self._limits.steps:
                raise TurnTooExpensive("a template exceeds the budget of the turn")
            raise LimitExceeded(f"more than {self._limits.steps} steps were needed")

    def charge_text(self, characters: int, so_far: int = 0) -> None:
        """Pay for a text about to be created, or for the next piece of one."""
        if so_far + characters > self._limits.size:
            raise LimitExceeded(f"a text would be longer than {self._limits.size} characters")
        self.charge(1 + characters // CHARACTERS_PER_STEP)

    def charge_elements(self, count: int) -> None:
        """Pay for a list or map about to be created or walked."""
        if count > self._limits.size:
            raise LimitExceeded(f"{count} elements are more than {self._limits.size}")
        self.charge(1 + 2 * count)
