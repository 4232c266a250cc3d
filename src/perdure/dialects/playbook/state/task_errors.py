"""Error outcomes: the kind of failure, and whether a retry may help (PBK-075)."""

from typing import Any

import msgspec

from perdure.expressions.jinja.errors import TemplateError
from perdure.kernel.json_values import jsontext

RETRYABLE = frozenset(
    {
        *("connection", "timeout", "rate_limit", "server_error"),
        *("db_connection", "db_deadlock", "db_timeout", "missing_reference", "lease_lost"),
    }
)

KINDS = RETRYABLE | frozenset(
    {
        *("auth", "not_found", "client_error", "schema", "parse", "transform", "db_constraint", "storage_quota"),
        *("storage_access", "unknown", "template", "serialization", "ctx_conflict", "loop_collection", "policy_fail"),
        *("limit", "cancelled", "child_failed", "exception"),
    }
)


class Error(msgspec.Struct, gc=False, array_like=True, frozen=True, forbid_unknown_fields=True):
    kind: str
    message: str = ""
    code: str | int | None = None
    retryable: bool = False
    source: str = ""
    details: bytes | None = None  # JSON text
    retry_after: float | None = None

    def data(self) -> dict[str, Any]:
        """The error as guards and people read it."""
        data: dict[str, Any] = {
            "kind": self.kind,
            "retryable": self.retryable,
            "code": self.code,
            "message": self.message,
            "source": self.source,
            "details": None if self.details is None else jsontext.decode(self.details),
        }
        if self.retry_after is not None:
            data["retry_after"] = self.retry_after
        return data

    def summary(self) -> dict[str, Any]:
        return {"kind": self.kind, "code": self.code, "message": self.message}


def template_message(fault: TemplateError) -> str:
    """A template error in one line."""
    return fault.message if fault.expression is None else f"{fault.message}, in `{fault.expression}`"


def error(kind: str, message: str, code: str | int | None = None, *, source: str = "", details: Any = None) -> Error:
    text = None if details is None else jsontext.encode(details)
    return Error(kind, message, code, kind in RETRYABLE, source, text)
