"""Filters between data and other forms: JSON, base64, digests (PBK-150).

`tojson` writes for machines: members sorted, nothing escaped for HTML, so that equal data give equal text.
"""

import base64
import binascii
import hashlib
import json
from typing import Any

from perdure.expressions.jinja.budget import Budget, describe
from perdure.expressions.jinja.errors import EvaluationFault
from perdure.expressions.jinja.results import as_json
from perdure.kernel import jsontext

_WIDEST_INDENT = 16


def to_json(budget: Budget, value: Any, indent: int | None = None) -> str:
    if indent is not None and not (isinstance(indent, int) and 0 <= indent <= _WIDEST_INDENT):
        raise EvaluationFault(f"the indent must be a number up to {_WIDEST_INDENT}")
    data = as_json(budget, value)
    text = json.dumps(data, ensure_ascii=False, sort_keys=True, indent=indent)
    budget.charge_text(len(text))
    return text


def from_json(budget: Budget, value: Any) -> Any:
    text = _text(budget, value, "fromjson")
    try:
        return jsontext.read_strict(text)
    except jsontext.NotJson as refusal:
        raise EvaluationFault(f"the text is not JSON: {refusal}") from None


def encode_base64(budget: Budget, value: Any) -> str:
    return base64.b64encode(_bytes(budget, value, "b64encode")).decode("ascii")


def decode_base64(budget: Budget, value: Any) -> str:
    try:
        return base64.b64decode(_bytes(budget, value, "b64decode"), validate=True).decode("utf-8")
    except binascii.Error:
        raise EvaluationFault("the text is not base64") from None
    except UnicodeDecodeError:
        raise EvaluationFault("what the base64 text stands for is not text") from None


def sha256(budget: Budget, value: Any) -> str:
    return hashlib.sha256(_bytes(budget, value, "sha256")).hexdigest()


def _text(budget: Budget, value: Any, name: str) -> str:
    budget.weigh_emitted(value)
    if not isinstance(value, str):
        raise EvaluationFault(f"`{name}` works on text, not on {describe(value)}; see `tojson`")
    budget.charge_text(2 * len(value))
    return str(value)


def _bytes(budget: Budget, value: Any, name: str) -> bytes:
    try:
        return _text(budget, value, name).encode("utf-8")
    except UnicodeEncodeError:
        raise EvaluationFault("the text holds half a character and has no UTF-8 form") from None
