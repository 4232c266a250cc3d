"""The kinds of tools a task may use. Each turns rendered fields into work, and the outcome of the work into a result.

A new kind is one module here and its line in `KINDS`; a kind that is the name of a registered provider needs neither.
"""

from collections.abc import Mapping

from perdure.dialects.playbook.tools import artifact, databases, http, jobs, noop, playbook, python, secrets, shell
from perdure.dialects.playbook.tools.kind import UNCHANGED, ToolCall, ToolKind, ToolResult, read_timeout, reads_nothing
from perdure.dialects.playbook.tools.provided import PROVIDER_KIND

__all__ = [
    "KINDS",
    "PROVIDER_KIND",
    "UNCHANGED",
    "WORKBOOK",
    "ToolCall",
    "ToolKind",
    "ToolResult",
    "kind_of",
    "read_timeout",
    "reads_nothing",
    "start",
]

KINDS: Mapping[str, ToolKind] = {
    "noop": noop.KIND,
    "python": python.KIND,
    "http": http.KIND,
    "shell": shell.KIND,
    "postgres": databases.POSTGRES,
    "duckdb": databases.DUCKDB,
    "sqlite": databases.SQLITE,
    "container": jobs.CONTAINER,
    "script": jobs.SCRIPT,
    "playbook": playbook.KIND,
    "artifact": artifact.KIND,
    "secrets": secrets.KIND,
}

WORKBOOK = "workbook"  # not a tool: the compiler replaces it by the body of the entry (PBK-099)


def kind_of(name: str) -> ToolKind:
    return KINDS.get(name, PROVIDER_KIND)


def start(call: ToolCall) -> None:
    kind_of(call.task.kind).start(call)
