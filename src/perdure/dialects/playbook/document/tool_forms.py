"""The ways to write `tool` (PBK-017) and `workbook` (PBK-013), each as one list of named entries."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class WrittenTask(NamedTuple):
    """A task as it is written in the document."""

    label: str
    body: dict[str, Any]
    path: tuple[str | int, ...]  # from `tool`


def tasks_of(step: str, tool: Any) -> Iterator[WrittenTask]:
    """The well-formed tasks; anything else is skipped."""
    if isinstance(tool, dict):
        yield WrittenTask(_named(tool, f"{step}_task"), tool, ())
        return
    for index, item in enumerate(tool if isinstance(tool, list) else ()):
        if not isinstance(item, dict):
            continue
        if "kind" in item:
            yield WrittenTask(_named(item, f"task_{index}"), item, (index,))
        elif (label := lone_label(item)) is not None:
            yield WrittenTask(label, item[label], (index, label))


def _named(body: Mapping[str, Any], otherwise: str) -> str:
    name = body.get("name")
    return name if isinstance(name, str) and name else otherwise


def lone_label(item: Mapping[str, Any]) -> str | None:
    """The label of `{label: {kind: …}}`."""
    if len(item) != 1:
        return None
    ((label, body),) = item.items()
    return label if isinstance(body, dict) else None


def workbook_entries(workbook: Any) -> dict[str, tuple[tuple[str | int, ...], Any]]:
    """Its entries by name, each with its path: `tasks: {name: body}`, or a list of `{name, tool}` (PBK-013)."""
    tools: dict[str, tuple[tuple[str | int, ...], Any]] = {}
    if isinstance(workbook, list):
        for index, item in enumerate(workbook):
            if isinstance(item, dict) and isinstance(item.get("name"), str):
                tools[item["name"]] = ((index, "tool"), item.get("tool"))
        return tools
    listed = workbook.get("tasks") if isinstance(workbook, dict) else None
    if isinstance(listed, dict):
        return {name: (("tasks", name), body) for name, body in listed.items()}
    return tools
