"""Numbers, characters and quoted texts as Go writes them."""

import re

from perdure.kernel.lazy_regex import lazy_regex

_LONGEST = 400
INT_MIN, INT_MAX = -(2**63), 2**63 - 1

_ESCAPE = lazy_regex(
    r"\\(?:([abfnrtv\\'\"])|x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([\s\S]?))"
)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", "'": "'", '"': '"'}
_INTEGER = lazy_regex(r"[+-]?(?:0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO]?[0-7_]*|[1-9][0-9_]*)")
_DECIMAL = lazy_regex(r"[+-]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL = lazy_regex(r"[+-]?0[xX][0-9a-fA-F_]*\.?[0-9a-fA-F_]*[pP][+-]?[0-9]+")


class BadLiteral(ValueError):
    """A constant that has no value; the message says why."""


def read_number(text: str) -> int | float:
    """A float if it is written with a point or an exponent, otherwise an integer."""
    if len(text) > _LONGEST:
        raise BadLiteral(f"a number has at most {_LONGEST} characters")
    if _INTEGER.fullmatch(text):
        number = _read_integer(text)
        if not INT_MIN <= number <= INT_MAX:
            raise BadLiteral("an integer has at most 64 bits")
        return number
    if _DECIMAL.fullmatch(text) or _HEXADECIMAL.fullmatch(text):
        try:
            value = float.fromhex(text.replace("_", "")) if "x" in text.lower() else float(text.replace("_", ""))
        except (ValueError, OverflowError):
            raise BadLiteral(f"{text[:60]} is not a number") from None
        if value in (float("inf"), float("-inf")):
            raise BadLiteral("this number is too large")
        return value
    if text.endswith("i"):
        raise BadLiteral("complex numbers are not supported")
    raise BadLiteral(f"{text[:60]} is not a number")


def _read_integer(text: str) -> int:
    digits = text.lstrip("+-").replace("_", "").lower()
    if len(digits) > 1 and digits[0] == "0" and digits[1] not in "xbo":
        digits = "0o" + digits[1:]
    if digits in ("0x", "0b", "0o"):
        raise BadLiteral(f"{text[:60]} is not a number")
    number = int(digits, 0)
    return -number if text[0] == "-" else number


def read_quoted(text: str) -> str:
    """The text between double quotes, or between single quotes in a subscript."""
    quote, inner = text[0], text[1:-1]
    if "\\" not in inner:
        return inner

    def replace(match: "re.Match[str]") -> str:
        simple, byte, octal, short, long, other = match.groups()
        if simple and not (simple in "'\"" and simple != quote):
            return _SIMPLE[simple]
        if simple or other is not None:
            raise BadLiteral(f"{match.group()!r} is not an escape sequence")
        if byte or octal:
            return _byte(int(byte, 16) if byte else int(octal, 8))
        return _scalar(int(short or long, 16))

    return _join_bytes(_ESCAPE.sub(replace, inner))


def _byte(value: int) -> str:
    if value > 255:
        raise BadLiteral("an octal escape is at most \\377")
    return chr(value) if value < 128 else chr(0xDC00 + value)  # a lone byte, until its neighbours are known


def _scalar(value: int) -> str:
    if value > 0x10FFFF or 0xD800 <= value < 0xE000:
        raise BadLiteral(f"U+{value:04X} is not a character")
    return chr(value)


def _join_bytes(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def read_character(text: str) -> int:
    """The code point of a character constant."""
    value = read_quoted(text)
    if len(value) != 1:
        raise BadLiteral("single quotes hold one character; a text is written in double quotes")
    return ord(value)
