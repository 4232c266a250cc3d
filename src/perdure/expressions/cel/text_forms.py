"""How numbers are written as text, and text as bytes."""

import math
from decimal import Decimal

from perdure.expressions.cel.frame import Frame, allow_size, width_of
from perdure.expressions.errors import EvaluationFault


def format_double(value: float) -> str:
    """The shortest digits that read back the same; an exponent below 1e-4 and from 1e6 on (Go's `%g`)."""
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = shortest_digits(value)
    scale = len(digits) + exponent - 1
    if not -4 <= scale < 6 and digits != "0":
        return f"{sign}{digits[0]}{'.' + digits[1:] if len(digits) > 1 else ''}e{scale:+03}"
    return sign + plain_digits(digits, exponent)


def plain_double(value: float) -> str:
    """The shortest digits, never with an exponent."""
    sign, digits, exponent = shortest_digits(value)
    return sign + plain_digits(digits, exponent)


def plain_digits(digits: str, exponent: int) -> str:
    if exponent >= 0:
        return digits + "0" * exponent
    padded = digits.rjust(-exponent + 1, "0")
    return f"{padded[:exponent]}.{padded[exponent:]}"


def shortest_digits(value: float) -> tuple[str, str, int]:
    """Sign, digits and decimal exponent of a finite double; zero has the digits `0`."""
    negative, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits))
    stripped = text.rstrip("0") or "0"
    assert isinstance(exponent, int)
    return "-" if negative else "", stripped, 0 if stripped == "0" else exponent + len(text) - len(stripped)


def encode_text(frame: Frame, text: str) -> bytes:
    allow_size(frame, len(text), width=width_of(text))
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise EvaluationFault("the string holds a lone surrogate, which has no UTF-8 form") from None
