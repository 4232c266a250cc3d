"""How large a value is, counted in values, before anything is written of it."""

from typing import Any

import msgspec

NODES = 4_000
"""Values in one piece when writing."""

LARGE_NUMBER = 1 << 512
HOLDERS = frozenset({dict, list, tuple})
_TEXTS = frozenset({str, msgspec.Raw})


def is_large(value: Any, most: int = NODES) -> bool:
    """Whether a value is large enough to be written elsewhere, or in pieces."""
    return weigh(value, most) > most


def weigh(value: Any, most: int) -> int:
    """How many values it contains, long texts and numbers counted for more; counting stops above the limit."""
    if type(value) not in HOLDERS:
        return len(value) >> 6 if type(value) in _TEXTS else weigh_digits(value) if type(value) is int else 0
    weight = 0
    pending = [value]
    for holder in pending:
        weight += len(holder)
        if weight > most:
            break
        for item in holder.values() if type(holder) is dict else holder:
            kind = type(item)
            if kind is str:
                weight += len(item) >> 6
            elif kind in HOLDERS:
                pending.append(item)
            elif kind is int and not -LARGE_NUMBER < item < LARGE_NUMBER:
                weight += weigh_digits(item)
    return weight


def weigh_digits(number: int) -> int:
    """Writing them takes the square of their number."""
    return number.bit_length() ** 2 >> 19
