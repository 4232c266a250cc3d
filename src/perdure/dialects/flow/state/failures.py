"""Failures: how an envelope is made, linked to the one it supersedes, and matched (MWL-500 to MWL-520)."""

from collections.abc import Mapping
from typing import Any

from perdure.kernel.turn_budget import pay_for_each

Envelope = dict[str, Any]

CANCELLED = "System.Cancelled"
DISPATCH_CANCELLED = "System.GatherDispatchCancelled"
DISPATCH_SKIPPED = "System.GatherDispatchSkipped"
COMPLETION_UNMET = "System.GatherCompletionUnmet"
EVALUATION_ERROR = "System.ExpressionEvaluationError"
VALIDATION_FAILED = "System.ParameterValidationFailed"
EMPTY_RAISE = "System.EmptyRaise"
TRUNCATED = "System.FailureChainTruncated"

MEMBERS = ("type", "code", "message", "details", "retryable", "previous")


class Fault(Exception):
    """A field or an argument failed; carries the envelope of that failure."""

    def __init__(self, envelope: Envelope) -> None:
        super().__init__(envelope["code"])
        self.envelope = envelope


def failure(code: str, message: str = "", *, type: str = "error", **members: Any) -> Envelope:
    envelope: Envelope = {"type": type, "code": code}
    if message:
        envelope["message"] = message
    return envelope | members


def cancellation(code: str = CANCELLED, **members: Any) -> Envelope:
    return failure(code, type="cancellation", **members)


SKIPPED = failure(DISPATCH_SKIPPED, type="skipped")


def invalid(message: str, path: str, value: Any) -> Fault:
    """`System.ParameterValidationFailed` with the evidence that MWL-520 asks for."""
    return Fault(failure(VALIDATION_FAILED, message, details={"path": path, "value": value}))


def link_failures(new: Envelope, superseded: Envelope) -> Envelope:
    """`new` with the superseded failure, itself, at the end of its chain: no history is overwritten (MWL-517)."""
    links = [new]
    while isinstance(links[-1].get("previous"), dict):
        links.append(links[-1]["previous"])
    chain = superseded
    for envelope in reversed(links):
        chain = {**envelope, "previous": chain}
    return chain


def truncate_chain(envelope: Envelope, limit: int) -> Envelope:
    """The failure with at most `limit` links, the last of them a marker if some were dropped (MWL-518)."""
    links = [envelope]
    while isinstance(links[-1].get("previous"), dict):
        links.append(links[-1]["previous"])
    if len(links) <= limit:
        return envelope
    chain = failure(TRUNCATED)
    for envelope in reversed(links[: limit - 1]):
        chain = {**envelope, "previous": chain}
    return chain


def matches(matcher: Mapping[str, Any], envelope: Envelope) -> bool:
    """All members of the matcher must agree (MWL-503, MWL-504)."""
    if "codes" in matcher:
        pay_for_each(len(matcher["codes"]), 6)
        if not any(code_matches(pattern, envelope["code"]) for pattern in matcher["codes"]):
            return False
    if "types" in matcher and envelope["type"] not in matcher["types"]:
        return False
    return "retryable" not in matcher or envelope.get("retryable") is matcher["retryable"]


def code_matches(pattern: str, code: str) -> bool:
    """An exact code, `Prefix.*` for whole segments, or `*`. A star elsewhere is an ordinary character (O-15)."""
    if pattern == "*" or pattern == code:
        return True
    return pattern.endswith(".*") and code.startswith(pattern[:-1]) and len(code) > len(pattern) - 1


def covers(wide: dict[str, Any], narrow: dict[str, Any]) -> bool:
    """Whether every failure that `narrow` matches is matched by `wide`."""
    if "codes" in wide and not all(_has_pattern(wide["codes"], pattern) for pattern in narrow.get("codes", ["*"])):
        return False
    if "types" in wide and not ("types" in narrow and set(narrow["types"]) <= set(wide["types"])):
        return False
    return "retryable" not in wide or narrow.get("retryable") is wide["retryable"]


def _has_pattern(patterns: list[str], narrow: str) -> bool:
    """Whether one of the patterns matches all that the narrow one does; an unused code represents all of them."""
    if narrow == "*":
        return "*" in patterns
    code = f"{narrow[:-1]}\x00" if narrow.endswith(".*") else narrow
    return any(code_matches(pattern, code) for pattern in patterns)


def checked_member(name: str, value: Any, path: str) -> Any:
    """A computed envelope member, or `Fault` when it has another type than the envelope allows (MWL-105)."""
    match name:
        case "type" | "code" | "message" if not isinstance(value, str):
            raise invalid(f"{name!r} must be a string", path, value)
        case "type" if value == "success":
            raise invalid("a failure cannot have the type 'success'", path, value)
        case "retryable" if value is not None and not isinstance(value, bool):
            raise invalid("'retryable' must be a boolean or null", path, value)
        case "previous" if value is not None and not is_envelope(value):
            raise invalid("'previous' must be a failure envelope or null", path, value)
    return value


def is_envelope(value: Any) -> bool:
    while isinstance(value, dict):
        kind, code = value.get("type"), value.get("code")
        if not isinstance(kind, str) or kind == "success" or not isinstance(code, str):
            return False
        if not isinstance(value.get("message", ""), str) or value.get("retryable") not in (None, True, False):
            return False
        if value.get("retryable") is not None and not isinstance(value["retryable"], bool):
            return False
        value = value.get("previous")
        if value is None:
            return True
    return False
