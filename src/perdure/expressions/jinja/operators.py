"""Operators, paid for before they work: arithmetic, comparison, joining, slicing.

Python's meaning where it applies to JSON data; mixed kinds are an error that names both.
"""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jinja2 import Undefined

from perdure.expressions import bounded_calls
from perdure.expressions.jinja.budget import LARGEST_INTEGER_BITS, Budget, describe, width_of
from perdure.expressions.jinja.errors import EvaluationFault, LimitExceeded
from perdure.expressions.jinja.undefined import fail
from perdure.kernel.lazy_regex import lazy_regex

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
BINARY_OPERATORS = frozenset(_BINARY)

_COMPARISONS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "eq": ("==", lambda left, right: _are_equal(left, right)),
    "ne": ("!=", lambda left, right: not _are_equal(left, right)),
    "lt": ("<", operator.lt),
    "lteq": ("<=", operator.le),
    "gt": (">", operator.gt),
    "gteq": (">=", operator.ge),
}
_BYTES_OF_A_PART_OF_THE_BODY = 12  # what an iteration of a loop may leave in memory, for each part of its body
_SCALARS = (str, int, float, bool, type(None))
_FORMAT = lazy_regex(r"%(?:\(\w*\))?[-+ #0]*(\*|\d*)(?:\.(\*|\d*))?")


def calculate(budget: Budget, sign: str, left: Any, right: Any) -> Any:
    """`left sign right`."""
    for side in (left, right):
        if isinstance(side, Undefined):
            fail(side)
    if isinstance(left, str) and sign == "%":
        return format_text(budget, str(left), right)
    if isinstance(left, int | float) and isinstance(right, int | float):
        _charge_numbers(budget, sign, left, right)
    elif sign == "+":
        _charge_adding(budget, left, right)
    elif sign == "*":
        _charge_repeating(budget, left, right)
    try:
        answer = _BINARY[sign](left, right)
    except ZeroDivisionError:
        raise EvaluationFault("division by zero") from None
    except OverflowError:
        raise EvaluationFault("the number is out of range") from None
    except TypeError:
        advice = "; join texts with `~`" if sign == "+" and isinstance(left, str) != isinstance(right, str) else ""
        raise EvaluationFault(f"`{sign}` does not work on {describe(left)} and {describe(right)}{advice}") from None
    if isinstance(answer, complex):
        raise EvaluationFault("the root of a negative number is not a real number")
    return answer


def negate(sign: str, value: Any) -> Any:
    """`-value` and `+value`."""
    if isinstance(value, Undefined):
        fail(value)
    if not isinstance(value, int | float):
        raise EvaluationFault(f"`{sign}` does not work on {describe(value)}")
    return -value if sign == "-" else +value


def _charge_numbers(budget: Budget, sign: str, left: int | float, right: int | float) -> None:
    budget.charge(1)
    if not isinstance(left, int) or not isinstance(right, int):
        return
    left_bits, right_bits = left.bit_length(), right.bit_length()
    budget.charge(left_bits * right_bits >> 17)
    bits = max(left_bits, right_bits)
    if sign == "**" and right > 0:
        bits = left_bits * right
    elif sign == "*":
        bits = left_bits + right_bits
    if bits > LARGEST_INTEGER_BITS:
        raise LimitExceeded(
            f"`{sign}` works on numbers of at most {LARGEST_INTEGER_BITS} bits, and its result must not be larger"
        )


def _charge_adding(budget: Budget, left: Any, right: Any) -> None:
    if isinstance(left, str) and isinstance(right, str):
        budget.charge_text(len(left) + len(right), width_of(left, right))
    elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
        budget.charge_elements(len(left) + len(right))


def _charge_repeating(budget: Budget, left: Any, right: Any) -> None:
    times, value = (left, right) if isinstance(left, int) else (right, left)
    if not isinstance(times, int):
        return
    if isinstance(value, str):
        budget.charge_text(len(value) * max(times, 0), width_of(value))
    elif isinstance(value, list | tuple):
        budget.charge_elements(len(value) * max(times, 0))


def format_text(budget: Budget, text: str, values: Any) -> str:
    """Python's `%` on text, with limited widths."""
    budget.charge_text(len(text), width_of(text))
    budget.charge(8 * text.count("%"))
    widths = 0
    for match in _FORMAT.finditer(text):
        for width in match.groups(""):
            if width == "*" or len(width) > 4:
                raise LimitExceeded(f"the width in `{match[0]}` is too large")
            widths += int(width or 0)
    budget.weigh_text(list(values) if isinstance(values, tuple) else [values])
    budget.charge_text(len(text) + widths, width_of(text))
    try:
        result: str = text % values
    except (TypeError, ValueError, KeyError) as error:
        raise EvaluationFault(f"the text cannot be formatted: {error}") from None
    budget.charge_text(len(result))
    return result


def compare(budget: Budget, name: str, left: Any, right: Any) -> bool:
    """The comparison that Jinja calls `name`: eq, ne, lt, lteq, gt, gteq, in, notin."""
    if name in ("in", "notin"):
        return _contains(budget, right, left) is (name == "in")
    if not isinstance(left, _SCALARS) and not isinstance(right, _SCALARS):
        budget.weigh(left)
    elif isinstance(left, str):
        budget.charge(1 + len(left) // 256)
    sign, answer = _COMPARISONS[name]
    if name not in ("eq", "ne"):
        for side in (left, right):
            if isinstance(side, Undefined):
                fail(side)
    try:
        return bool(answer(left, right))
    except TypeError:
        raise EvaluationFault(f"`{sign}` does not work on {describe(left)} and {describe(right)}") from None


def _contains(budget: Budget, container: Any, item: Any) -> bool:
    if isinstance(container, Mapping):
        return isinstance(item, _SCALARS) and item in container
    if isinstance(container, str):
        if isinstance(item, Undefined):
            return False
        if not isinstance(item, str):
            raise EvaluationFault(f"`in` looks for {describe(item)} in a text; write it in quotes")
        budget.charge(1 + (len(container) + len(item)) // 8)
        return item in container
    if isinstance(container, range):
        budget.charge(1)
        whole = int(item) if isinstance(item, float) and item.is_integer() else item
        return isinstance(whole, int) and whole in container  # anything else Python would look for one by one
    if isinstance(container, list | tuple):
        if not isinstance(item, _SCALARS):
            budget.weigh(container)
        return any(item in part for part in _searched(budget, container, item))
    if isinstance(container, Undefined):
        return False
    raise EvaluationFault(f"`in` does not work on {describe(container)}")


def _searched(budget: Budget, items: Sequence[Any], item: Any) -> Iterator[Sequence[Any]]:
    """The elements in pieces, each paid for: one text may be compared with each of a million that are the same one."""
    length = len(item) if isinstance(item, str) else 0
    step = max(1, bounded_calls.PARTS * 64 // (64 + length))
    for first in range(0, len(items), step):
        part = items if len(items) <= step else items[first : first + step]
        budget.charge(1 + len(part) // 4 + len(part) * length // 1024)
        yield part


def _are_equal(left: Any, right: Any) -> bool:
    """Like `==`; long lists are compared in pieces."""
    if not (isinstance(left, list | tuple) and type(left) is type(right) and len(left) > bounded_calls.PARTS):
        return bool(left == right)
    step = bounded_calls.PARTS
    return len(left) == len(right) and all(
        left[first : first + step] == right[first : first + step] for first in range(0, len(left), step)
    )


def join_texts(budget: Budget, values: list[Any]) -> str:
    """`a ~ b ~ c`."""
    budget.weigh_emitted([value for value in values if isinstance(value, str)])
    texts = [budget.text_of(value) for value in values]
    budget.charge_text(sum(map(len, texts)), width_of(*texts))
    return "".join(texts)


def take_slice(budget: Budget, value: Any, start: Any, stop: Any, step: Any) -> Any:
    """`value[start:stop:step]`."""
    if isinstance(value, Undefined):
        fail(value)
    if not isinstance(value, str | list | tuple | range):
        raise EvaluationFault(f"{describe(value)} has no slices")
    if not all(bound is None or isinstance(bound, int) for bound in (start, stop, step)) or step == 0:
        raise EvaluationFault("the bounds of a slice must be whole numbers, and its step not 0")
    budget.charge(1 + len(value) // 8)
    budget.spend(56 + len(value) * (width_of(value) if isinstance(value, str) else 8))
    return value[start:stop:step]


def iterate(budget: Budget, value: Any, weight: int) -> Any:
    """What a `for` iterates over; all iterations are paid for at once, by the size of the loop's body."""
    if isinstance(value, Undefined):
        return list(value)
    if not isinstance(value, list | tuple | str | range | Mapping):
        raise EvaluationFault(f"`for` cannot iterate over {describe(value)}")
    budget.charge(1 + len(value) * weight)
    budget.spend(64 + len(value) * _BYTES_OF_A_PART_OF_THE_BODY * weight)
    return list(value) if isinstance(value, Mapping) else value
