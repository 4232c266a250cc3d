"""Resources on their way out: as a table for people, as JSON or YAML for programs, or by name."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure.cli.console import Paint, width_of
from perdure.cli.stdout import give_json, give_text
from perdure.cli.tables import Column, table
from perdure.documents import write_document
from perdure.kernel.resource_kinds import ResourceKind
from perdure.kernel.validation import Resource
from perdure.kernel.values import SECOND, Instant
from perdure.views.times import span

FORMS = ("json", "yaml", "wide", "name")

_STYLES = {"Succeeded": "green", "succeeded": "green", "Failed": "red", "failed": "red", "Timeout": "red"}


@dataclass(frozen=True, slots=True)
class Named:
    """A resource under the name by which it can be asked for."""

    kind: ResourceKind
    name: str
    resource: Resource


def give_resources(
    found: Sequence[Named], form: str | None, now: Instant, *, alone: bool, all_namespaces: bool = False
) -> None:
    """`alone`: one resource was asked for by name, so that no list stands around it."""
    match form:
        case "json" | "yaml":
            items = [one.resource for one in found]
            whole = items[0] if alone else {"apiVersion": "v1", "kind": "List", "items": items}
            if form == "json":
                give_json(whole)
            else:
                give_text(write_document(whole).rstrip("\n"))
        case "name":
            if found:
                give_text("\n".join(one.kind.title(one.name) for one in found))
        case _:
            for lines in _tables(found, now, form == "wide", all_namespaces):
                give_text(lines)


def _tables(found: Sequence[Named], now: Instant, wide: bool, all_namespaces: bool) -> list[str]:
    blocks = []
    for kind in dict.fromkeys(one.kind for one in found):
        rows = [one for one in found if one.kind == kind]
        blocks.append("\n".join(_table(rows, now, wide, all_namespaces and kind.has_namespace)))
    return ["\n\n".join(blocks)] if blocks else []


def _table(rows: Sequence[Named], now: Instant, wide: bool, with_namespace: bool) -> list[str]:
    """A column that has nothing to say in any row is left out."""
    is_of_runs = rows[0].kind.of_runs
    columns: list[tuple[Column, Callable[[Resource], str]]] = [
        (Column("PHASE"), lambda one: _text(_at(one, "status", "phase"))),
        (Column("DECISION"), lambda one: _text(_at(one, "status", "decision"))),
        (Column("STORY", may_shrink=True), lambda one: _text(_at(one, "spec", "storyRef", "name"))),
        (Column("TEMPLATE", may_shrink=True), lambda one: _text(_at(one, "spec", "templateRef", "name"))),
        (Column("VERSION"), lambda one: _text(_at(one, "spec", "version") or _at(one, "metadata", "version"))),
        (Column("GENERATION", may_go=True), lambda one: "" if is_of_runs else _metadata(one, "generation")),
        (Column("AGE"), lambda one: age(one, now)),
    ]
    if wide:
        columns += [
            (Column("MESSAGE", may_shrink=True), lambda one: _text(_at(one, "status", "message"))),
            (Column("LABELS", may_shrink=True), lambda one: pairs(_at(one, "metadata", "labels"))),
            (Column("UID", may_go=True), lambda one: _metadata(one, "uid")),
        ]
    texts = [[read(one.resource) for _, read in columns] for one in rows]
    kept = [n for n in range(len(columns)) if any(row[n] for row in texts)]
    cells = [
        [(one.name, ""), *((row[n] or "-", _STYLES.get(row[n], "")) for n in kept)]
        for one, row in zip(rows, texts, strict=True)
    ]
    titles = [Column("NAME", may_shrink=True), *(columns[n][0] for n in kept)]
    if with_namespace:
        titles.insert(0, Column("NAMESPACE"))
        for one, line in zip(rows, cells, strict=True):
            line.insert(0, (_metadata(one.resource, "namespace"), ""))
    return table(titles, cells, width_of(sys.stdout), Paint(sys.stdout))


def age(resource: Resource, now: Instant) -> str:
    made = _metadata(resource, "creationTimestamp") or _text(_at(resource, "status", "startedAt"))
    try:
        return span(now - int(datetime.fromisoformat(made).timestamp() * SECOND)) if made else ""
    except ValueError:
        return ""


def pairs(labels: Any) -> str:
    return ",".join(f"{name}={value}" for name, value in labels.items()) if isinstance(labels, dict) else ""


def _metadata(resource: Resource, name: str) -> str:
    return _text(_at(resource, "metadata", name))


def _at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str:
    return "" if value is None else str(value)
