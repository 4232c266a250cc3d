"""What one rendering may use, and the purse it pays from (PBK-151). Counts operations, not seconds.

A step is about one operation; work that grows with its operands pays in proportion, before it is done.
"""

from collections.abc import ItemsView, KeysView, ValuesView
from typing import Any

import msgspec
from jinja2 import Undefined

from perdure.expressions.jinja.errors import EvaluationFault, LimitExceeded


class Limits(msgspec.Struct, frozen=True):
    """The defaults are generous for people and tight for attackers."""

    source: int = 65_536  # characters of one template
    nodes: int = 2_000  # operations, names and constants in one template
    depth: int = 64  # nesting of blocks and expressions, and of documents that hold templates
    steps: int = 1_000_000  # operations, roughly; stands for the second of PBK-151
    size: int = 1_048_576  # characters or elements of any one value made
    output: int = 1_048_576  # characters written by one rendering


DEFAULT_LIMITS = Limits()
CHARACTERS_PER_STEP = 32  # text is cheap compared with an operation
LARGEST_INTEGER_BITS = 8_192

_LISTS = (list, tuple, range, KeysView, ValuesView, ItemsView)


class Budget:
    """What is left for one rendering."""

    __slots__ = ("_limits", "_output", "_steps")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._steps = limits.steps
        self._output = limits.output

    def charge(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise LimitExceeded(f"more than {self._limits.steps} steps were needed")

    def charge_text(self, characters: int) -> None:
        """Pay for a text about to be made."""
        if characters > self._limits.size:
            raise LimitExceeded(f"a text of {characters} characters is longer than {self._limits.size}")
        self.charge(1 + characters // CHARACTERS_PER_STEP)

    def charge_elements(self, count: int) -> None:
        """Pay for a list or mapping about to be made or walked."""
        if count > self._limits.size:
            raise LimitExceeded(f"{count} elements are more than {self._limits.size}")
        self.charge(1 + count)

    def charge_output(self, characters: int) -> None:
        self._output -= characters
        if self._output < 0:
            raise LimitExceeded(f"the output is longer than {self._limits.output} characters")
        self.charge(1 + characters // CHARACTERS_PER_STEP)

    def weigh(self, value: Any) -> int:
        """Pay for looking at all of a value, parts that occur twice counted twice. Gives what was paid."""
        return self._weigh(value, _accept)

    def weigh_emitted(self, value: Any) -> int:
        """As `weigh`, for a value that is about to become text or an answer: nothing in it may be undefined."""
        return self._weigh(value, str)  # an undefined that refuses to be text says so here

    def _weigh(self, value: Any, met_undefined: Any) -> int:
        before = self._steps
        waiting = [value]
        while waiting:
            item = waiting.pop()
            if isinstance(item, str):
                self.charge(1 + len(item) // CHARACTERS_PER_STEP)
            elif item is None or isinstance(item, bool | int | float):
                self.charge(1)
            elif isinstance(item, dict):
                self.charge(2 * len(item) + 1)
                waiting.extend(item.values())
                waiting.extend(key for key in item if not isinstance(key, str))
            elif isinstance(item, _LISTS):
                self.charge(len(item) + 1)
                if not isinstance(item, range):
                    waiting.extend(item)
            elif isinstance(item, Undefined):
                met_undefined(item)
            else:
                raise EvaluationFault(f"{describe(item)} is no value that data can hold")
        return before - self._steps


def _accept(_: Any) -> None:
    pass


_KINDS: dict[type, str] = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a text",
    dict: "a mapping",
    list: "a list",
    tuple: "a list",
    range: "a list",
}


def describe(value: Any) -> str:
    """What kind of thing a value is, in the words of messages."""
    for kind in type(value).__mro__:
        if kind in _KINDS:
            return _KINDS[kind]
    return f"a {type(value).__name__.lower()}"
