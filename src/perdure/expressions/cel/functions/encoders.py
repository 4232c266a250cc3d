"""The encoders extension: base64, standard alphabet."""

import base64
import binascii

from perdure.expressions.cel.frame import Frame, allow_size
from perdure.expressions.cel.functions.library import Function, Library
from perdure.expressions.errors import EvaluationFault


def _encode(frame: Frame, value: bytes) -> str:
    allow_size(frame, len(value) * 4 // 3, width=2)
    return base64.b64encode(value).decode("ascii")


def _decode(frame: Frame, text: str) -> bytes:
    """With padding or without."""
    allow_size(frame, len(text), width=3)
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise EvaluationFault(f"{text[:60]!r} is not base64") from None


LIBRARY = Library(
    functions={
        "base64.encode": Function(((bytes,), _encode)),
        "base64.decode": Function(((str,), _decode)),
    }
)
