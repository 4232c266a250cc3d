"""JSON, base64, base32 and digests."""

import base64
import binascii
import hashlib
import zlib

from perdure.expressions import json_decoding
from perdure.expressions.errors import EvaluationFault
from perdure.expressions.gotemplate.errors import NotJson
from perdure.expressions.gotemplate.frame import Frame
from perdure.expressions.gotemplate.functions.library import ANY, TEXT, takes, takes_frame
from perdure.expressions.gotemplate.json_text import decode, encode
from perdure.expressions.gotemplate.values import Value


def must_read_json(frame: Frame, text: str) -> Value:
    frame.budget.charge(len(text) // 2)
    try:
        return json_decoding.decode(text, decode, lambda steps: frame.budget.charge(steps // 8))
    except json_decoding.MalformedJson:
        raise NotJson("this is not JSON") from None


def from_json(frame: Frame, text: str) -> Value:
    """nil when it is not JSON; `mustFromJson` fails instead."""
    try:
        return must_read_json(frame, text)
    except NotJson:
        return None


def pretty_json(frame: Frame, value: Value) -> str:
    return encode(value, frame.budget, indent="  ")


def raw_json(frame: Frame, value: Value) -> str:
    return encode(value, frame.budget, escape_html=False)


def decode_base64(text: str) -> str:
    try:
        return base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        raise EvaluationFault("this is not base64") from None


def decode_base32(text: str) -> str:
    try:
        return base64.b32decode(text.replace("\n", "").replace("\r", "")).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        raise EvaluationFault("this is not base32") from None


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


_TO_JSON = takes_frame(lambda frame, value: encode(value, frame.budget), ANY)

FUNCTIONS = {
    "adler32sum": takes(lambda text: str(zlib.adler32(_bytes(text))), TEXT),
    "b32dec": takes(decode_base32, TEXT),
    "b32enc": takes(lambda text: base64.b32encode(_bytes(text)).decode(), TEXT),
    "b64dec": takes(decode_base64, TEXT),
    "b64enc": takes(lambda text: base64.b64encode(_bytes(text)).decode(), TEXT),
    "fromJson": takes_frame(from_json, TEXT),
    "mustFromJson": takes_frame(must_read_json, TEXT),
    "mustToJson": _TO_JSON,
    "mustToPrettyJson": takes_frame(pretty_json, ANY),
    "mustToRawJson": takes_frame(raw_json, ANY),
    "sha1sum": takes(lambda text: hashlib.sha1(_bytes(text), usedforsecurity=False).hexdigest(), TEXT),
    "sha256sum": takes(lambda text: hashlib.sha256(_bytes(text)).hexdigest(), TEXT),
    "toJson": _TO_JSON,
    "toPrettyJson": takes_frame(pretty_json, ANY),
    "toRawJson": takes_frame(raw_json, ANY),
}
