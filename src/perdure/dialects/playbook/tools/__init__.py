"""The kinds of tools a task may use. Each turns rendered fields into work, and the outcome of the work into a result.

A new kind is one module here and its line in `KINDS`; a kind that is the name of a registered provider needs neither.
"""

from collections.abc import Mapping

from perdure.dialects.playbook.tools import artifact, databases, http, jobs, noop, playbook, python, secrets, shell
from perdure.dialects.playbook.tools.kind import AS_IT_IS, Call, Kind, ToolResult, reads_nothing, seconds
from perdure.dialects.playbook.tools.provided import PROVIDED

__all__ = [
    "AS_IT_IS",
    "KINDS",
    "WORKBOOK",
    "Call",
    "Kind",
    "ToolResult",
    "kind_of",
    "reads_nothing",
    "seconds",
    "start",
]

KINDS: Mapping[str, Kind] = {
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

WORKBOOK = "workbook"  # not a tool of its own: the program holds the entry's body in its place (PBK-099)


def kind_of(name: str) -> Kind:
    return KINDS.get(name, PROVIDED)


def start(call: Call) -> None:
    kind_of(call.task.kind).start(call)
