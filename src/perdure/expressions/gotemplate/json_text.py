"""Encoding and decoding JSON as Go does: keys sorted, `<`, `>` and `&` escaped, integers exact."""

from math import isfinite
from typing import Any

import msgspec

from perdure.expressions.errors import EvaluationFault
from perdure.expressions.gotemplate.budget import Budget
from perdure.expressions.gotemplate.errors import NotJson
from perdure.expressions.gotemplate.floats import format_json_float
from perdure.expressions.gotemplate.formatting import TextBuilder
from perdure.expressions.gotemplate.instants import GoTime
from perdure.expressions.gotemplate.layouts import format_moment
from perdure.expressions.gotemplate.values import Value, require_present, sorted_keys
from perdure.kernel.lazy_regex import lazy_regex

_SPECIAL = lazy_regex(r'[\x00-\x1f"\\\u2028\u2029\ud800-\udfff]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_HTML = lazy_regex("[<>&]")
_RFC3339 = "2006-01-02T15:04:05.999999999Z07:00"


def encode(value: Value, budget: Budget, indent: str = "", escape_html: bool = True) -> str:
    """Raises `EvaluationFault` for numbers without a JSON form."""
    text = TextBuilder(budget)
    _add(value, text, indent, "\n", escape_html)
    return text.build()


def _add(value: Value, text: TextBuilder, indent: str, margin: str, escape_html: bool) -> None:
    if type(value) is list and value:
        inner = margin + indent
        for at, element in enumerate(value):
            text.add(("," if at else "[") + (inner if indent else ""))
            _add(element, text, indent, inner, escape_html)
        text.add(margin + "]" if indent else "]")
    elif type(value) is dict and value:
        require_present(value)
        inner = margin + indent
        for at, key in enumerate(sorted_keys(value)):
            text.add(("," if at else "{") + (inner if indent else ""))
            text.add(quote(key, escape_html) + (": " if indent else ":"))
            _add(value[key], text, indent, inner, escape_html)
        text.add(margin + "}" if indent else "}")
    else:
        text.add(_scalar(value, escape_html))


def _scalar(value: Value, escape_html: bool) -> str:
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if type(value) is int:
        return str(value)
    if type(value) is float:
        if not isfinite(value):
            raise EvaluationFault("JSON has no number for infinity or NaN")
        return format_json_float(value)
    if isinstance(value, GoTime):
        return f'"{format_moment(value, _RFC3339)}"'
    if isinstance(value, list | dict):
        return "[]" if type(value) is list else "{}"
    return quote(str(value), escape_html)


def quote(text: str, escape_html: bool = True) -> str:
    """A string in JSON, as Go's encoder writes it."""
    text = _SPECIAL.sub(lambda match: _escape(match.group()), text)
    if escape_html:
        text = _HTML.sub(lambda match: f"\\u{ord(match.group()):04x}", text)
    return f'"{text}"'


def _escape(char: str) -> str:
    return _SHORT.get(char) or ("\\ufffd" if "\ud800" <= char <= "\udfff" else f"\\u{ord(char):04x}")


def decode(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise NotJson("this is not JSON") from None
