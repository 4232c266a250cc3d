"""Floating-point numbers as Go prints them. Handles digits and exponents, no verbs and no templates."""

from math import isinf, isnan

_LARGE = 6  # the decimal exponent from which Go uses an exponent: 100000, but 1e+06


def format_float(value: float, style: str = "g", precision: int = -1, alternate: bool = False) -> str:
    """`style` is e, f or g; a precision of -1 means the fewest digits that read back as the same number.

    No sign is written for positive numbers.
    """
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if precision < 0:
        return _shortest(value, style)
    return f"{value:{'#' if alternate else ''}.{precision}{style}}"


def _shortest(value: float, style: str) -> str:
    sign, digits, point = _decimal(value)
    exponent = point - 1
    if style == "e" or (style == "g" and (exponent < -4 or exponent >= _LARGE)):
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if len(digits) <= point:
        return sign + digits.ljust(point, "0")
    return f"{sign}{digits[:point]}.{digits[point:]}"


def _decimal(value: float) -> tuple[str, str, int]:
    """Sign, shortest digits, and the position of the decimal point among them."""
    text = repr(value)
    sign, text = ("-", text[1:]) if text[0] == "-" else ("", text)
    mantissa, _, exponent = text.partition("e")
    integer, _, fraction = mantissa.partition(".")
    digits = integer + ("" if fraction == "0" else fraction)
    point = len(integer) + int(exponent or 0)
    stripped = digits.lstrip("0")
    if not stripped:
        return sign, "0", 1
    return sign, stripped.rstrip("0") or "0", point - (len(digits) - len(stripped))


def format_json_float(value: float) -> str:
    """Like Go's JSON encoder: an exponent only for very small and very large numbers."""
    size = abs(value)
    if size != 0 and (size < 1e-6 or size >= 1e21):
        mantissa, _, exponent = _shortest(value, "e").partition("e")
        return f"{mantissa}e{exponent[0]}{exponent[1:].lstrip('0') or '0'}"
    return _shortest(value, "f")
