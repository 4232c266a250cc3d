"""What a JSON Schema costs where the validation library cannot be interrupted, and does not count.

It compiles all patterns of a schema in one call, compares numbers of more than 64 bits as decimal texts, each with all
others if they must be unique, and makes all errors at once, each with a copy of what it is about. Numbers of more than
53 bits that are one and the same as a double have one hash there, so they are compared with each other too. Numbers
that are extremely large or small are compared, and divided, as fractions of hundreds of digits.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.documents.schema_size import SchemaTooLarge
from perdure.kernel.json_values import jsontext

MOST_PATTERNS = 1_000
PATTERNS_BYTES = 20 << 20  # of all compiled patterns of a schema: about 50 milliseconds
PATTERN_BYTES = 10 << 20, 64 << 10  # of one: at most, and always
MOST_QUOTED = 16 << 20  # characters in all errors together; of a value that may cause more only the first is told
MOST_ERRORS = 4_000  # that a value may have, all of which the library makes in one call: about 50 milliseconds
MOST_COMPARISONS = 1_000_000  # of 64 bits of two numbers: about 50 milliseconds
LARGEST_BITS = 1024  # of a number in a schema; those of doubles have not more
LARGEST = 1 << LARGEST_BITS
_WORD = 64
_EXTREME = 1e30, 1e-30  # numbers above and below these are compared slowly
_WORK_OF_EXTREMES = 400, 1_200  # comparisons, as which one comparison or division of such a number counts
_EXACT = 1 << 53  # up to here each number is a double of its own

_COMPARING = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems", "const", "enum"}
)
_NAMES = ("dependencies", "dependentRequired")


class SchemaCosts:
    """`pattern_bytes`: the limit of one compiled pattern. `tells_first`: whether one error can be told of any value.

    An error of alternatives has all errors of each of them.
    """

    __slots__ = (
        "_compares",
        "_compares_items",
        "_is_extreme",
        "_names",
        "_quoted",
        "_work_of_an_extreme",
        "pattern_bytes",
        "tells_first",
    )

    def __init__(self, parts: Sequence[Mapping[str, Any]]) -> None:
        """Raises `SchemaTooLarge`. `parts`: of the schema, without its references."""
        patterns = sum(("pattern" in part) + len(_members(part.get("patternProperties"))) for part in parts)
        if patterns > MOST_PATTERNS:
            raise SchemaTooLarge(f"it has more than {MOST_PATTERNS} patterns")
        if any(type(part.get(name)) is int and abs(part[name]) > LARGEST for part in parts for name in _COMPARING):
            raise SchemaTooLarge(f"it has a number of more than {LARGEST_BITS} bits")
        largest, least = PATTERN_BYTES
        self.pattern_bytes = max(least, min(largest, PATTERNS_BYTES // max(patterns, 1)))
        self._compares = any(not _COMPARING.isdisjoint(part) for part in parts)
        self._compares_items = any("uniqueItems" in part for part in parts)
        self._is_extreme = any(_is_extreme(part.get(name)) for part in parts for name in _COMPARING)
        self._work_of_an_extreme = _WORK_OF_EXTREMES[any("multipleOf" in part for part in parts)]
        self.tells_first = not any("anyOf" in part or "oneOf" in part for part in parts)
        self._names = sum(_count_names(part) for part in parts)
        self._quoted = sum(
            len(jsontext.encode(part[name])) for part in parts for name in ("const", "enum") if name in part
        )

    def refusal(self, value: Any, checks_per_part: int) -> str | None:
        """Why comparing the numbers in the value would take too long."""
        if not self._compares:
            return None
        count = largest = work = extremes = 0
        alike: Counter[float] = Counter()
        for part in _walk(value):
            if type(part) is float or (self._is_extreme and type(part) is int):
                extremes += self._is_extreme or _is_extreme(part)
            if type(part) is not int or -_EXACT <= part <= _EXACT:
                continue
            if words := _extra_words(part):
                count, largest, work = count + 1, max(largest, words), work + 1 + words * words
            elif self._compares_items:
                alike[float(part)] += 1
        work *= checks_per_part
        if extremes * self._work_of_an_extreme > MOST_COMPARISONS:
            return "it has too many numbers that are extremely large or small"
        if self._compares_items:
            work += count * count * (6 + largest * largest // 4)
            if 6 * sum(number * number for number in alike.values()) > MOST_COMPARISONS:
                return "it has too many numbers of more than 53 bits that are almost equal"
        return "it has too many numbers of more than 64 bits" if work > MOST_COMPARISONS else None

    def tells_all(self, value: Any, checks_per_part: int) -> bool:
        """Whether all that does not fit can be told: each error has a copy of the part of the data that it is about."""
        left = MOST_QUOTED // (checks_per_part + self._names)
        errors = MOST_ERRORS
        pending: list[tuple[Any, int]] = [(value, 1)]
        for part, depth in pending:
            errors -= checks_per_part + (self._names if isinstance(part, dict) else 0)
            if errors < 0:
                return False
            left -= self._quoted + depth * (8 + len(part) if isinstance(part, str) else 8)
            if left < 0:
                return False
            if isinstance(part, dict):
                left -= depth * sum(map(len, part))
                pending += [(item, depth + 1) for item in part.values()]
            elif isinstance(part, list):
                pending += [(item, depth + 1) for item in part]
        return True


def _is_extreme(number: Any) -> bool:
    largest, least = _EXTREME
    return type(number) is float and number != 0 and not least <= abs(number) <= largest


def _extra_words(number: int) -> int:
    """Beyond the one in which the library compares quickly: 64 bits, or 63 and a sign."""
    return ((number if number >= 0 else 2 * number).bit_length() - 1) // _WORD if number else 0


def _walk(value: Any) -> Any:
    pending = [value]
    for part in pending:
        if isinstance(part, dict):
            pending += part.values()
        elif isinstance(part, list):
            pending += part
        yield part


def _members(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count_names(part: Mapping[str, Any]) -> int:
    """Of members that have to be there: each that is missing is an error of the whole object."""
    listed = [part.get("required"), *(names for name in _NAMES for names in _members(part.get(name)).values())]
    return sum(len(names) for names in listed if isinstance(names, list))
