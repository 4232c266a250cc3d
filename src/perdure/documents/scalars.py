"""What a scalar means: the YAML 1.2 core schema, and nothing more.

Dates, `yes`, `on`, `1_000` and `12:30:45` are text. `010` is ten and `0o10` is eight.
"""

import math
from typing import Any

from perdure.kernel.lazy_regex import lazy_regex

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER_STARTS = frozenset("0123456789+-.")
_DECIMAL = lazy_regex(r"[-+]?[0-9]+")
_FLOAT = lazy_regex(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = lazy_regex(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_PREFIXED = lazy_regex(r"0o[0-7]+|0x[0-9a-fA-F]+")

_MOST_DIGITS = 3_500  # of a whole number; even in base 16 Python can still write it in base 10

_TAGS = "tag:yaml.org,2002:"
_EXPECTED: dict[str, type | tuple[type, ...]] = {"int": int, "float": (int, float), "bool": bool, "null": type(None)}


class InvalidScalar(ValueError):
    """The scalar has no value that JSON can represent; the message says why."""


def resolve_plain(text: str) -> Any:
    """The value of a scalar written without quotes. Raises `InvalidScalar`."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_STARTS:
        return text
    if _DECIMAL.fullmatch(text):
        return _integer(text, 10)
    if _FLOAT.fullmatch(text):
        return _float(text)
    if _PREFIXED.fullmatch(text):
        return _integer(text, 0)
    if _NOT_FINITE.fullmatch(text):
        raise InvalidScalar(f"{text} cannot be represented in JSON")
    return text


def resolve_tagged(tag: str, text: str) -> Any:
    """The value of a scalar with an explicit tag. Raises `InvalidScalar`."""
    name = tag.removeprefix(_TAGS)
    if name in ("str", "!"):
        return text
    expected = _EXPECTED.get(name) if tag.startswith(_TAGS) else None
    if expected is None:
        raise InvalidScalar(f"the tag {spell_tag(tag)} is not supported")
    value: Any = resolve_plain(text)
    if not isinstance(value, expected) or (name != "bool" and isinstance(value, bool)):
        raise InvalidScalar(f"{shortened(text)!r} is not of type {name}")
    return _float(str(value)) if name == "float" else value


def is_container_tag(tag: str | None, name: str) -> bool:
    """Whether a list or mapping may carry this tag: no tag, or the tag of its own type."""
    return tag is None or tag in ("!", _TAGS + name)


def spell_tag(tag: str) -> str:
    return shortened("!!" + tag.removeprefix(_TAGS) if tag.startswith(_TAGS) else tag)


def shortened(text: str) -> str:
    """Text for a message, cut if it is long."""
    return text if len(text) <= 60 else text[:50] + "…"


def _integer(text: str, base: int) -> int:
    if len(text) > _MOST_DIGITS:
        raise InvalidScalar(f"the number {shortened(text)} has too many digits")
    return int(text, base)


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise InvalidScalar(f"the number {shortened(text)} is out of range")
    return number
