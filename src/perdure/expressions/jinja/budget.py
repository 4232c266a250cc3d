"""What one rendering may use, and the budget it pays from (PBK-151). Counts operations, not seconds.

A step is about one operation; work that grows with its operands pays in proportion, before it is done.
"""

from collections.abc import ItemsView, KeysView, ValuesView
from typing import Any

import msgspec
from jinja2 import Undefined

from perdure.expressions.jinja.errors import EvaluationFault, LimitExceeded
from perdure.kernel.turn_budget import PORTION, TurnBudget, TurnTooExpensive, current, rest


class Limits(msgspec.Struct, frozen=True):
    """Limits of one rendering: about a second and a hundred megabytes."""

    source: int = 65_536  # characters of one template
    nodes: int = 2_000  # operations, names and constants in one template
    depth: int = 64  # nesting of blocks and expressions, and of documents that contain templates
    steps: int = 5_000_000  # operations, approximately; implements the second of PBK-151
    size: int = 1_048_576  # characters or elements of any one created value
    output: int = 1_048_576  # characters written by one rendering
    memory: int = 100_000_000  # bytes of all created values


DEFAULT_LIMITS = Limits()
_WORK_OF_A_STEP = 4
_PORTION = PORTION // _WORK_OF_A_STEP  # steps between two pauses
CHARACTERS_PER_STEP = 32  # text is cheap compared with an operation
LARGEST_INTEGER_BITS = 8_192
LONGEST_NUMBER = 2_000  # characters of a text that is read as a number
BYTES_OF_AN_ELEMENT = 40  # its place in a list, and a number
WRITTEN_AT_ONCE = 10_000  # steps of a value that one call turns into text
MOST_WRITTEN_AT_ONCE = 100_000  # if there is no other way
BYTES_OF_A_PART = 96  # a short text split from another, and its place in a list
_STEPS_OF_A_TEMPLATE = 10
_HASH_MODULUS = 2**61 - 1
_ORDINARY_BITS = 64

_LISTS = (list, tuple, range, KeysView, ValuesView, ItemsView)


class Budget(msgspec.Struct, eq=False):
    """What one rendering has used. Its limits are looked up at its first step: most renderings make none."""

    _limits: Limits
    weighs_results: bool = False  # of each of several templates in one value
    _made: int = 0  # steps
    _allowed: int = 0  # of them, before the next pause
    _most: int = 0  # of them, in total
    _is_open: bool = False
    _work: TurnBudget | None = None
    _output: int = 0
    _bytes: int = 0

    def settle(self) -> None:
        """The rendering has ended: charge its work to the turn."""
        if self._work is not None:
            self._work.left -= _WORK_OF_A_STEP * self._made

    def charge(self, steps: int) -> None:
        self._made += steps
        if self._made > self._allowed:
            self._go_on()

    def _go_on(self) -> None:
        """Continue with some more of the allowed steps, if there are any."""
        if self._is_open:
            rest()
        else:
            self._open()
        if self._made > self._allowed:
            self._allowed = min(self._most, max(self._allowed + _PORTION, self._made))
        if self._made > self._allowed:
            if self._most < self._limits.steps:
                raise TurnTooExpensive("a template exceeds the budget of the turn")
            raise LimitExceeded(f"more than {self._limits.steps} steps were needed")

    def _open(self) -> None:
        self._is_open = True
        self._work = work = current.get()
        self._allowed = self._most = self._limits.steps
        if work is not None:
            self._allowed = self._most = work.allow(self._limits.steps, _WORK_OF_A_STEP)
            if work.rest is not None and self._most > _PORTION:
                self._allowed = _PORTION

    def spend(self, size: int) -> None:
        """Pay for the memory of something about to be created."""
        self._bytes += size
        if self._bytes > self._limits.memory:
            raise LimitExceeded(f"more than {self._limits.memory} bytes of values were created")

    def charge_text(self, characters: int, width: int = 1) -> None:
        """Pay for a text about to be created; `width` is the bytes of a character."""
        if characters > self._limits.size:
            raise LimitExceeded(f"a text of {characters} characters is longer than {self._limits.size}")
        self.charge(1 + characters // CHARACTERS_PER_STEP)
        self.spend(56 + width * characters)

    def charge_elements(self, count: int, each: int = 8) -> None:
        """Pay for a list or mapping about to be created or walked; `each` is the bytes of an element."""
        if count > self._limits.size:
            raise LimitExceeded(f"{count} elements are more than {self._limits.size}")
        self.charge(1 + count)
        self.spend(64 + each * count)

    def charge_parts(self, text: str, count: int) -> None:
        """Pay for splitting a text into this many parts."""
        self.charge_elements(count, BYTES_OF_A_PART)
        self.charge_text(len(text), width_of(text))

    def charge_output(self, characters: int) -> None:
        self._output += characters
        if self._output > self._limits.output:
            raise LimitExceeded(f"the output is longer than {self._limits.output} characters")
        self.charge(1 + characters // CHARACTERS_PER_STEP)

    def charge_result(self, value: Any) -> None:
        """Pay for what will be written of a result, even if it is data that exist: many templates may return them."""
        self.charge(_STEPS_OF_A_TEMPLATE)
        self.spend(CHARACTERS_PER_STEP * self.weigh(value))

    def weigh(self, value: Any) -> int:
        """Pay for visiting all of a value, parts that occur twice counted twice. Returns what was paid."""
        return self._weigh(value, _accept)

    def weigh_emitted(self, value: Any) -> int:
        """Like `weigh`, for a value that is about to become text or a result: nothing in it may be undefined."""
        return self._weigh(value, str)  # an undefined value that cannot become text raises here

    def _weigh(self, value: Any, met_undefined: Any) -> int:
        before = self._made
        waiting = [value]
        while waiting:
            item = waiting.pop()
            if isinstance(item, str):
                self.charge(1 + len(item) // CHARACTERS_PER_STEP)
            elif item is None or isinstance(item, bool | int | float):
                self.charge(1 if not isinstance(item, int) else 1 + price_of_digits(item))
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
                raise EvaluationFault(f"{describe(item)} is not a value that data can hold")
        return self._made - before

    def charge_keys(self, value: Any) -> None:
        """Pay for a set or mapping with keys out of this value, whichever they are.

        Python's hash of integers repeats beyond 2^61, so a set of such numbers can be made slow on purpose.
        """
        large, waiting = 0, [value]
        while waiting:
            item = waiting.pop()
            if isinstance(item, int):
                large += abs(item) >= _HASH_MODULUS
            elif isinstance(item, dict):
                self.charge(2 * len(item) + 1)
                waiting.extend(item)
                waiting.extend(item.values())
            elif isinstance(item, _LISTS) and not isinstance(item, range):
                self.charge(len(item) + 1)
                waiting.extend(item)
        self.charge(large * large)

    def weigh_text(self, value: Any) -> int:
        """Like `weigh_emitted`, for a value that one call turns into text."""
        paid = self.weigh_emitted(value)
        if paid > MOST_WRITTEN_AT_ONCE and not isinstance(value, str):
            raise LimitExceeded(f"{describe(value)} of so many parts becomes text by `string` or `tojson` only")
        return paid

    def text_of(self, value: Any) -> str:
        """Like `str(value)`, paid for; a large value is written in pieces."""
        if isinstance(value, str):
            return str(value)
        if self.weigh_emitted(value) <= WRITTEN_AT_ONCE:
            return str(value)
        pieces: list[str] = []
        self._write(value, pieces)
        return "".join(pieces)

    def _write(self, value: Any, pieces: list[str]) -> None:
        """As `repr` writes it."""
        if type(value) is dict:
            pieces.append("{")
            for at, (key, item) in enumerate(value.items()):
                pieces.append(", " if at else "")
                self._write(key, pieces)
                pieces.append(": ")
                self._write(item, pieces)
            pieces.append("}")
        elif type(value) is list or type(value) is tuple:
            pieces.append("[" if type(value) is list else "(")
            for at, item in enumerate(value):
                pieces.append(", " if at else "")
                self._write(item, pieces)
            pieces.append("]" if type(value) is list else ",)" if len(value) == 1 else ")")
        else:
            text = repr(value)
            self.charge_text(len(text))
            pieces.append(text)


def price_of_digits(number: int) -> int:
    """Steps for writing an integer as text, which takes time by the square of its length, in one call."""
    bits = number.bit_length()
    return bits * bits >> 12 if bits > _ORDINARY_BITS else 0


def width_of(*texts: str) -> int:
    """How many bytes a character may take in a text made of these."""
    for text in texts:
        if not text.isascii():
            return 4
    return 1


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
    """The kind of a value, for messages."""
    for kind in type(value).__mro__:
        if kind in _KINDS:
            return _KINDS[kind]
    return f"a {type(value).__name__.lower()}"
