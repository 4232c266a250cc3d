"""Values as JSON data and in other forms: JSON text, base64, digests (PBK-148, PBK-150).

Input data are returned by reference; only values that a template created are converted. Lists of any kind become lists,
marked text becomes text; NaN, infinity and what is not data are refused.
"""

import base64
import binascii
import hashlib
import json
import math
from typing import Any

from jinja2 import Undefined

from perdure.expressions import bounded_calls, json_decoding
from perdure.expressions.jinja.budget import BYTES_OF_AN_ELEMENT, Budget, describe, width_of
from perdure.expressions.jinja.errors import EvaluationFault
from perdure.expressions.jinja.undefined import fail
from perdure.kernel.json_values import jsontext

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def as_json(budget: Budget, value: Any) -> Json:
    """The value as JSON data; the same object if it already is."""
    answer: Json = value
    if type(value) not in (str, bool, int, type(None)):
        budget.spend(BYTES_OF_AN_ELEMENT * budget.weigh_emitted(value))
        answer = _convert(value)
    return answer


def by_reference(budget: Budget, value: Any) -> Json:
    """The result of an expression that only reads data: it does not have to be inspected."""
    return value if type(value) in (dict, list, float) else as_json(budget, value)


def _convert(value: Any) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise EvaluationFault(f"{value} is not a number in JSON")
        return value
    if isinstance(value, dict):
        return _convert_mapping(value)
    if isinstance(value, Undefined):
        fail(value)
    items = [_convert(item) for item in value]
    same = type(value) is list and all(new is old for new, old in zip(items, value, strict=True))
    return value if same else items


def _convert_mapping(value: dict[Any, Any]) -> Any:
    mapping = {}
    changed = False
    for key, item in value.items():
        if not isinstance(key, str):
            raise EvaluationFault(f"a key must be a text, not {describe(key)}")
        mapping[str(key)] = new = _convert(item)
        changed = changed or new is not item
    return mapping if changed else value


# Filters between data and other forms: JSON, base64, digests (PBK-150).

_WIDEST_INDENT = 16
_AT_ONCE = 10_000  # the weight of a value that is written by one call
_BYTES_OF_A_JSON_PART = 64
_BYTES_PER_CHARACTER = 28  # of JSON text, at most: an empty list or mapping and its place


def to_json(budget: Budget, value: Any, indent: int | None = None) -> str:
    if indent is not None and not (isinstance(indent, int) and 0 <= indent <= _WIDEST_INDENT):
        raise EvaluationFault(f"the indent must be a number up to {_WIDEST_INDENT}")
    paid = budget.weigh_emitted(value)
    budget.spend(_BYTES_OF_A_JSON_PART * paid * (1 if indent is None else 1 + indent // 4))
    data = as_json(budget, value)
    if paid <= _AT_ONCE:
        text = json.dumps(data, ensure_ascii=False, sort_keys=True, indent=indent)
    else:
        budget.charge(8 * paid)
        writer = json.JSONEncoder(ensure_ascii=False, sort_keys=True, indent=indent)
        text = bounded_calls.join("", list(writer.iterencode(data)))  # written part by part, not in one call
    budget.charge_text(len(text), width_of(text))
    return text


def from_json(budget: Budget, value: Any) -> Any:
    text = _text(budget, value, "fromjson")
    budget.charge(len(text) // 4)
    budget.spend(_BYTES_PER_CHARACTER * len(text))
    try:
        return json_decoding.decode(text, jsontext.read_strict, budget.charge, unique=True)
    except (jsontext.NotJson, json_decoding.MalformedJson) as refusal:
        raise EvaluationFault(f"the text is not JSON: {refusal}") from None


def encode_base64(budget: Budget, value: Any) -> str:
    return base64.b64encode(_bytes(budget, value, "b64encode")).decode("ascii")


def decode_base64(budget: Budget, value: Any) -> str:
    try:
        return base64.b64decode(_bytes(budget, value, "b64decode"), validate=True).decode("utf-8")
    except binascii.Error:
        raise EvaluationFault("the text is not base64") from None
    except UnicodeDecodeError:
        raise EvaluationFault("the decoded base64 is not text") from None


def sha256(budget: Budget, value: Any) -> str:
    return hashlib.sha256(_bytes(budget, value, "sha256")).hexdigest()


def _text(budget: Budget, value: Any, name: str) -> str:
    budget.weigh_emitted(value)
    if not isinstance(value, str):
        raise EvaluationFault(f"`{name}` works on text, not on {describe(value)}; see `tojson`")
    budget.charge_text(2 * len(value), 2 * width_of(value))
    return str(value)


def _bytes(budget: Budget, value: Any, name: str) -> bytes:
    try:
        return _text(budget, value, name).encode("utf-8")
    except UnicodeEncodeError:
        raise EvaluationFault("the text contains an unpaired surrogate and cannot be encoded as UTF-8") from None
