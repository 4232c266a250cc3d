"""`secrets`: reads a secret into a value that lives in the worker's memory only (PBK-100).

Its result is not recorded: rules and later steps see a mark in its place. The fields of later tasks of the same
pipeline may use it; if it is no longer in memory, after a restart or on another machine, it is read again.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from perdure.dialects.playbook.plan.keychain_declarations import host_secret_names
from perdure.dialects.playbook.state.values import Reader
from perdure.dialects.playbook.tools.kind import UNCHANGED, ToolCall, ToolKind, ToolResult, failure
from perdure.kernel.outcomes import Outcome, Succeeded

FIELDS = ("provider", "name", "key", "secret_name", "path", "map", "project", "version", "vault", "endpoint", "auth")

SECRET_NAMES = ("key", "secret_name", "path", "name")
"""Fields that name the secret; the first one that is present counts."""


def _secret_names(fields: Mapping[str, Any]) -> Iterator[str]:
    name = next((fields[field] for field in SECRET_NAMES if fields.get(field)), None)
    yield from host_secret_names(fields, fields.get("map") or {"value": name})


def _start(call: ToolCall) -> None:
    raise AssertionError("opening its envelope is all of a secrets task")


def _on_result(outcome: Outcome, text: Reader) -> ToolResult:
    if isinstance(outcome, Succeeded):
        return UNCHANGED
    return ToolResult(failure(outcome, "auth", None, source="secrets"))


KIND = ToolKind(
    _start,
    _on_result,
    required=(("name", "key", "secret_name", "path", "map"),),
    fields=frozenset({*FIELDS, "args"}),
    provider="playbook.secrets",
    is_sensitive=True,
    secret_names=_secret_names,
)
