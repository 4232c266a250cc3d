"""`secrets`: reads a secret into a value that lives in the worker's memory only (PBK-100).

Its result is not recorded: rules and later steps see a mark in its place. The fields of later tasks of the same
pipeline may use it; where it is not in memory any more, after a restart or on another machine, it is read again.
"""

from perdure.dialects.playbook.state.values import Reader
from perdure.dialects.playbook.tools.kind import AS_IT_IS, Call, Kind, ToolResult, failure
from perdure.kernel.outcomes import Outcome, Succeeded

FIELDS = ("provider", "name", "key", "secret_name", "path", "map", "project", "version", "vault", "endpoint", "auth")


def _start(call: Call) -> None:
    raise AssertionError("opening its envelope is all of a secrets task")


def _land(outcome: Outcome, text: Reader) -> ToolResult:
    if isinstance(outcome, Succeeded):
        return AS_IT_IS
    return ToolResult(failure(outcome, "auth", None, source="secrets"))


KIND = Kind(
    _start,
    _land,
    required=(("name", "key", "secret_name", "path", "map"),),
    fields=frozenset({*FIELDS, "args"}),
    provider="playbook.secrets",
    is_sensitive=True,
)
