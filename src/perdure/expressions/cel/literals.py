"""From the text of a literal token to its value. Problems are raised as `BadLiteral`, with an offset in the token."""

import re

from perdure.expressions.cel.values import INT_MAX, INT_MIN, UINT_MAX, Uint
from perdure.kernel.lazy_regex import lazy_regex


class BadLiteral(Exception):
    """The literal is a valid token but has no value."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


def read_int(text: str, *, negative: bool) -> int:
    value = _read_digits(text)
    value = -value if negative else value
    if not INT_MIN <= value <= INT_MAX:
        raise BadLiteral(0, "this int does not fit in 64 bits")
    return value


def read_uint(text: str) -> Uint:
    value = _read_digits(text[:-1])
    if value > UINT_MAX:
        raise BadLiteral(0, "this uint does not fit in 64 bits")
    return Uint(value)


def _read_digits(text: str) -> int:
    if len(text) > 40:  # far beyond 64 bits; Python itself refuses to read thousands of digits
        digits = text.lstrip("0") if not text.startswith("0x") else text[2:].lstrip("0")
        return UINT_MAX + 1 if len(digits) > 40 else _parse(text)
    return _parse(text)


def _parse(text: str) -> int:
    return int(text, 16) if text.startswith("0x") else int(text)


def read_double(text: str, *, negative: bool) -> float:
    value = float(text)
    return -value if negative else value


_ESCAPE = lazy_regex(
    r"\\(?:(?P<simple>[abfnrtv\\?\"'`])|(?P<octal>[0-3][0-7]{2})|[xX](?P<hex>[0-9a-fA-F]{2})"
    r"|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8}))"
)
_SIMPLE = dict(zip("abfnrtv\\?\"'`", "\a\b\f\n\r\t\v\\?\"'`", strict=True))


def read_string(token: str) -> str:
    body, offset, is_raw = _strip(token)
    if is_raw or "\\" not in body:
        return body
    out: list[str] = []
    at = 0
    while (slash := body.find("\\", at)) >= 0:
        out.append(body[at:slash])
        escape = _escape(body, slash, offset)
        if escape["simple"]:
            out.append(_SIMPLE[escape["simple"]])
        else:
            out.append(_code_point(_number(escape), offset + slash))
        at = escape.end()
    out.append(body[at:])
    return "".join(out)


def read_bytes(token: str) -> bytes:
    body, offset, is_raw = _strip(token[1:])
    if is_raw or "\\" not in body:
        return body.encode("utf-8", "surrogatepass")
    out = bytearray()
    at = 0
    while (slash := body.find("\\", at)) >= 0:
        out += body[at:slash].encode("utf-8", "surrogatepass")
        escape = _escape(body, slash, offset + 1)
        if escape["short"] or escape["long"]:
            raise BadLiteral(offset + 1 + slash, "\\u and \\U are for strings; bytes take \\x and octal escapes")
        out.append(ord(_SIMPLE[escape["simple"]]) if escape["simple"] else _number(escape))
        at = escape.end()
    out += body[at:].encode("utf-8", "surrogatepass")
    return bytes(out)


def _strip(token: str) -> tuple[str, int, bool]:
    """The text between the quotes, where it begins in the token, and whether it is raw."""
    is_raw = token[0] in "rR"
    start = int(is_raw)
    width = 3 if token[start : start + 3] in ("'''", '"""') and len(token) >= start + 6 else 1
    return token[start + width : -width], start + width, is_raw


def _escape(body: str, slash: int, offset: int) -> re.Match[str]:
    match = _ESCAPE.match(body, slash)
    if match is None:
        raise BadLiteral(offset + slash, f"unknown escape {body[slash : slash + 2]!r}")
    return match


def _number(match: re.Match[str]) -> int:
    if match["octal"]:
        return int(match["octal"], 8)
    return int(match["hex"] or match["short"] or match["long"], 16)


def _code_point(number: int, offset: int) -> str:
    if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
        raise BadLiteral(offset, f"{number:#x} is not a Unicode code point")
    return chr(number)
