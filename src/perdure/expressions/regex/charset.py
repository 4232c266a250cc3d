"""Sets of characters: what one position of a pattern accepts."""

import unicodedata
from bisect import bisect_left
from functools import lru_cache

import msgspec

# Why a pattern was refused.


class BadPattern(Exception):
    """The pattern is not RE2 syntax, or would need too large a program."""


Range = tuple[int, int]
_LAST = 0x10FFFF
SMALL_RANGE = 512  # a range up to this size is folded character by character


class CharSet(msgspec.Struct, frozen=True):
    """Ranges in order and Unicode categories, optionally negated, optionally case-insensitive."""

    ranges: tuple[Range, ...] = ()
    categories: tuple[tuple[str, bool], ...] = ()  # (prefix of the general category, expected)
    negated: bool = False
    folds: bool = False

    def __contains__(self, char: str) -> bool:
        variants = _variants(char) if self.folds else (char,)
        return self._holds(variants) != self.negated

    def _holds(self, variants: tuple[str, ...]) -> bool:
        for variant in variants:
            code = ord(variant)
            at = bisect_left(self.ranges, (code + 1,)) - 1
            if at >= 0 and self.ranges[at][1] >= code:
                return True
        if not self.categories:
            return False
        categories = [unicodedata.category(variant) for variant in variants]
        return any(
            any(category.startswith(name) for category in categories) == is_member
            for name, is_member in self.categories
        )

    def folded(self) -> "CharSet":
        """The same set, case-insensitive."""
        extra = [more for low, high in self.ranges if high - low <= SMALL_RANGE for more in _folded(low, high)]
        return CharSet(joined([*self.ranges, *extra]), self.categories, self.negated, True)


# Characters that fold to a letter without being its upper or lower case form by a simple mapping.
_ORBITS = {"k": "\u212a", "s": "\u017f", "å": "\u212b", "µ": "\u03bc", "ß": "\u1e9e", "θ": "\u03f4", "ω": "\u2126"}
_ORBIT_OF = {odd: letter for letter, odd in _ORBITS.items()}


@lru_cache(maxsize=256)
def _folded(low: int, high: int) -> tuple[Range, ...]:
    codes = {ord(variant) for code in range(low, high + 1) for variant in _variants(chr(code))}
    return joined([(code, code) for code in codes])


def joined(ranges: list[Range]) -> tuple[Range, ...]:
    """The same characters in as few ranges as possible, in order."""
    result: list[Range] = []
    for low, high in sorted(ranges):
        if result and low <= result[-1][1] + 1:
            result[-1] = result[-1][0], max(result[-1][1], high)
        else:
            result.append((low, high))
    return tuple(result)


@lru_cache(maxsize=2048)
def _variants(char: str) -> tuple[str, ...]:
    plain = _ORBIT_OF.get(char, char)
    variants = {char: None, plain: None}
    for variant in (plain.lower(), plain.upper(), plain.lower().upper(), plain.upper().lower()):
        if len(variant) == 1:
            variants[variant] = None
    for variant in list(variants):
        if variant in _ORBITS:
            variants[_ORBITS[variant]] = None
    return tuple(variants)


def single(char: str) -> CharSet:
    return CharSet(((ord(char), ord(char)),))


def complement(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    out: list[Range] = []
    at = 0
    for low, high in sorted(ranges):
        if low > at:
            out.append((at, low - 1))
        at = max(at, high + 1)
    if at <= _LAST:
        out.append((at, _LAST))
    return tuple(out)


EVERYTHING: tuple[Range, ...] = ((0, _LAST),)
EXCEPT_NEWLINE = complement(((10, 10),))

_DIGIT: tuple[Range, ...] = ((48, 57),)
_SPACE: tuple[Range, ...] = ((9, 10), (12, 13), (32, 32))
_WORD: tuple[Range, ...] = ((48, 57), (65, 90), (95, 95), (97, 122))
PERL_CLASSES: dict[str, tuple[Range, ...]] = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
POSIX_CLASSES: dict[str, tuple[Range, ...]] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGIT,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_CATEGORIES = frozenset(
    [
        "C",
        "Cc",
        "Cf",
        "Co",
        "Cs",
        "L",
        "Ll",
        "Lm",
        "Lo",
        "Lt",
        "Lu",
        "M",
        "Mc",
        "Me",
        "Mn",
        "N",
        "Nd",
        "Nl",
        "No",
        "P",
        "Pc",
        "Pd",
        "Pe",
        "Pf",
        "Pi",
        "Po",
        "Ps",
        "S",
        "Sc",
        "Sk",
        "Sm",
        "So",
        "Z",
        "Zl",
        "Zp",
        "Zs",
    ]
)


def named_class(members: tuple[Range, ...], *, negated: bool, folds: bool) -> CharSet:
    r"""A class by name. If case-insensitive, it is extended before it is negated: `(?i)\W` negates `(?i)\w`."""
    ranges = CharSet(members).folded().ranges if folds else members
    return CharSet(complement(ranges) if negated else ranges)


def unicode_class(name: str, *, is_member: bool) -> CharSet:
    r"""`\p{name}`: a general category. Scripts need tables that Python does not have."""
    if name.startswith("^"):
        name, is_member = name[1:], not is_member
    if name == "Any":
        return CharSet(EVERYTHING if is_member else ())
    if name not in _CATEGORIES:
        raise BadPattern(f"\\p{{{name[:40]}}} is not supported (expected a general category such as L, Lu or Nd)")
    return CharSet(categories=((name, is_member),))
