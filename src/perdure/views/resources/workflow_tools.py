"""Workflows of the catalog that are offered as tools: those whose author has labelled them so."""

import re
from typing import Any

import msgspec

from perdure.engine.client import Client
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.errors import Conflict
from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.views.access import Query, Question, Scope
from perdure.views.resources.document_check import validate

TOOL_LABEL = "perdure.dev/tool"
LONGEST_NAME = 64
MOST_TOOLS = 200
ANYTHING: dict[str, Any] = {"type": "object", "properties": {"input": {}}}


class ToolQuery(Query):
    namespace: str | None = None


class WorkflowTool(msgspec.Struct):
    """`schema` describes the input of a run; `is_object`: the input is what the tool is called with."""

    tool: str
    kind: str
    namespace: str
    name: str
    description: str
    schema: dict[str, Any]
    is_object: bool


def tool_name(namespace: str, name: str) -> str:
    return re.sub(r"[^a-z0-9_]", "_", f"{namespace}_{name}".lower())[:LONGEST_NAME]


def _namespace(key: ResourceKey) -> str:
    return key.namespace or DEFAULT_NAMESPACE


async def read_tools(client: Client, scope: Scope, query: ToolQuery) -> list[WorkflowTool]:
    """Those of the namespaces of whoever asks, in order of kind, namespace and name. Two of one name are refused."""
    tools: dict[str, WorkflowTool] = {}
    for kind in client.catalog.kinds:
        labelled = await client.store.list_keys(kind.name, None, {TOOL_LABEL: "true"}) if kind.can_run else []
        seen = [key for key, _ in labelled if scope.namespaces is None or _namespace(key) in scope.namespaces]
        for key in seen[:MOST_TOOLS]:
            row = (await client.store.resources([key])).get(key)
            if row is None:
                continue
            namespace, name = _namespace(key), key.name
            text = row.source or row.body
            checked = await validate(kind.title(name), text, client.validator, chosen=name, namespace=namespace)
            if checked.program is None or checked.errors or checked.language is None:
                continue  # it could not be started
            tool = tool_name(namespace, name)
            if tool in tools:
                other = tools[tool]
                raise Conflict(
                    f"two workflows would be the tool {tool!r}: {other.kind} {other.namespace}/{other.name} and"
                    f" {kind.name} {namespace}/{name}",
                    hint=f"Rename one of them, or take the label {TOOL_LABEL} away.",
                )
            schema = checked.language.schemas(checked.program).get("input")
            is_object = isinstance(schema, dict) and schema.get("type", "object") == "object"
            described = f"Start the {kind.name} {namespace}/{name} and answer its result, or the id of its run."
            offered = {"type": "object", **schema} if is_object and schema is not None else ANYTHING
            tools[tool] = WorkflowTool(tool, kind.name, namespace, name, described, offered, is_object)
    return list(tools.values())


TOOLS = Question(
    "list_workflow_tools", "/tools", "workflows that are offered as tools", ToolQuery, list[WorkflowTool], read_tools
)
