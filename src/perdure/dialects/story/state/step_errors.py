"""Structured errors of steps: version v1, a type, and a message without secrets (section 17)."""

from typing import Any

import msgspec

from perdure.kernel.json_values import jsontext
from perdure.kernel.secrets.secret_masking import cut, without_secrets

LONGEST_MESSAGE = 8_192  # bytes, STY-259
LONGEST_CONDITION = 2_048
LARGEST_DETAILS = 8_192

TYPES = (
    "timeout",
    "storage_error",
    "serialization_error",
    "validation_error",
    "initialization_error",
    "execution_error",
    "unknown",
)
EXIT_CLASSES = ("success", "retry", "terminal", "rateLimited", "unknown")

_BY_TEXT = (
    (("dehydrat", "storage"), "storage_error"),
    (("marshal",), "serialization_error"),
    (("schema", "validation"), "validation_error"),
    (("initialization", "Init"), "initialization_error"),
)


class StepError(msgspec.Struct, gc=False, frozen=True, rename="camel", omit_defaults=True):
    """`status.error` of a StepRun; it has no other members (STY-256)."""

    type: str
    message: str
    version: str = "v1"
    retryable: bool | None = None
    exit_code: int | None = None
    exit_class: str | None = None
    code: str | None = None
    details: dict[str, Any] | None = None

    @classmethod
    def make(
        cls,
        type: str | None,
        message: str,
        *,
        exit_code: int | None = None,
        exit_class: str | None = None,
        retryable: bool | None = None,
        code: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> "StepError":
        text = safe(message) or "unknown error"
        if retryable is None and exit_class is not None:
            retryable = exit_class in ("retry", "rateLimited")
        return cls(
            type if type in TYPES else type_of(text),
            text,
            retryable=retryable,
            exit_code=exit_code if exit_code is not None and exit_code >= 0 else None,
            exit_class=exit_class,
            code=code,
            details=_brief(details),
        )

    def encode(self) -> bytes:
        return jsontext.encode({"version": self.version, **msgspec.to_builtins(self)})


def type_of(text: str) -> str:
    """The type of an error without its own, from its text (STY-257)."""
    for words, error_type in _BY_TEXT:
        if any(word in text for word in words):
            return error_type
    return "execution_error"


def exit_class_of(code: int) -> str:
    """The class of an exit code (STY-123)."""
    match code:
        case 0:
            return "success"
        case -1:
            return "unknown"
        case 429:
            return "rateLimited"
        case 124 | 137 | 143:
            return "retry"
    return "retry" if 128 <= code <= 255 else "terminal"


def safe(message: str) -> str:
    """A message without anything that looks like a secret, shortened (STY-259)."""
    return cut(without_secrets(message), LONGEST_MESSAGE)


def _brief(details: dict[str, Any] | None) -> dict[str, Any] | None:
    if details is None:
        return None
    size = len(jsontext.encode(details))
    return details if size <= LARGEST_DETAILS else {"truncated": True, "sizeBytes": size}
