"""The memory of one rendering: the data, the current value of `.`, the variables, the output, the budget.

`Ambient` is what a pure package cannot know: the time, and the source of random numbers.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from perdure.expressions.errors import LimitExceeded
from perdure.expressions.gotemplate.aliases import find_aliased
from perdure.expressions.gotemplate.budget import Budget, Limits
from perdure.expressions.gotemplate.values import Value
from perdure.kernel.evaluation_trace import EvaluationTrace


class Ambient(msgspec.Struct, frozen=True):
    """`now` is aware; `draw` returns the next random number in [0, 1)."""

    now: datetime
    draw: Callable[[], float]


class Frame:
    """Owned by one rendering, discarded after it."""

    __slots__ = ("_limits", "_steps", "_written", "absent", "ambient", "budget", "dot", "parts", "slots")

    def __init__(self, roots: Mapping[str, Any], slots: int, limits: Limits, ambient: Ambient | None) -> None:
        self.dot: Value = roots
        self.slots: list[Value] = [roots, *[None] * (slots - 1)]
        self.budget = Budget(limits)
        self.ambient = ambient
        self.parts: list[str] = []
        self.absent = ""  # the first missing key that was read, unless the template provides a default for it
        self._limits = limits
        self._steps = roots.get("steps")
        self._written = 0

    def write(self, text: str) -> None:
        self._written += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        if self._written > self._limits.output:
            raise LimitExceeded(f"the output is longer than {self._limits.output} bytes")
        self.parts.append(text)

    def name_in(self, container: dict[str, Any], key: str) -> str | None:
        """The key as the container has it: in `steps` an alias is accepted (STY-196). None when it is missing."""
        if key in container:
            return key
        if container is not self._steps:
            return None
        self.budget.charge(len(container))
        return find_aliased(container, key)


class TracedFrame(Frame):
    """Reports to a trace which members of the data are read; never used to decide."""

    __slots__ = ("_trace",)

    def __init__(
        self, roots: Mapping[str, Any], slots: int, limits: Limits, ambient: Ambient | None, trace: EvaluationTrace
    ) -> None:
        super().__init__(roots, slots, limits, ambient)
        self._trace = trace
        trace.begin_at(roots)

    def name_in(self, container: dict[str, Any], key: str) -> str | None:
        name = super().name_in(container, key)
        self._trace.read_member(container, key if name is None else name, None if name is None else container[name])
        return name
