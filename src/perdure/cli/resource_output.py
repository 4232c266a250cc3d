"""Resources on their way out: as a table for people, as JSON or YAML for programs, or by name."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from perdure.cli.stdout import give_json, give_text
from perdure.cli.tables import Column, table
from perdure.kernel.documents.validation import Resource
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.views.resources.resource_list import NamedResource, resource_yaml
from perdure.views.times import span

FORMS = ("json", "yaml", "wide", "name")

_STYLES = {"Succeeded": "green", "succeeded": "green", "Failed": "red", "failed": "red", "Timeout": "red"}


def give_resources(
    resources: Sequence[NamedResource], form: str | None, now: Instant, *, alone: bool, all_namespaces: bool = False
) -> None:
    """`alone`: one resource was asked for by name, so that no list stands around it."""
    match form:
        case "json" | "yaml":
            items = [named.resource for named in resources]
            whole = items[0] if alone else {"apiVersion": "v1", "kind": "List", "items": items}
            if form == "json":
                give_json(whole)
            else:
                give_text(resource_yaml(whole).rstrip("\n"))
        case "name":
            if resources:
                give_text("\n".join(named.kind.title(named.name) for named in resources))
        case _:
            for lines in _tables(resources, now, form == "wide", all_namespaces):
                give_text(lines)


def _tables(resources: Sequence[NamedResource], now: Instant, wide: bool, all_namespaces: bool) -> list[str]:
    blocks = []
    for kind in dict.fromkeys(named.kind for named in resources):
        rows = [named for named in resources if named.kind == kind]
        blocks.append("\n".join(_table(rows, now, wide, all_namespaces and kind.has_namespace)))
    return ["\n\n".join(blocks)] if blocks else []


def _table(rows: Sequence[NamedResource], now: Instant, wide: bool, with_namespace: bool) -> list[str]:
    """A column that has nothing to say in any row is left out."""
    is_of_runs = rows[0].kind.of_runs
    columns: list[tuple[Column, Callable[[Resource], str]]] = [
        (Column("PHASE"), lambda resource: _text(_at(resource, "status", "phase"))),
        (Column("DECISION"), lambda resource: _text(_at(resource, "status", "decision"))),
        (Column("STORY", may_shrink=True), lambda resource: _text(_at(resource, "spec", "storyRef", "name"))),
        (Column("DOCUMENT", may_shrink=True), lambda resource: _text(_at(resource, "spec", "documentRef", "name"))),
        (Column("TEMPLATE", may_shrink=True), lambda resource: _text(_at(resource, "spec", "templateRef", "name"))),
        (
            Column("VERSION"),
            lambda resource: _text(_at(resource, "spec", "version") or _at(resource, "metadata", "version")),
        ),
        (Column("GENERATION", may_go=True), lambda resource: "" if is_of_runs else _metadata(resource, "generation")),
        (Column("AGE"), lambda resource: age(resource, now)),
    ]
    if wide:
        columns += [
            (Column("MESSAGE", may_shrink=True), lambda resource: _text(_at(resource, "status", "message"))),
            (Column("LABELS", may_shrink=True), lambda resource: pairs(_at(resource, "metadata", "labels"))),
            (Column("UID", may_go=True), lambda resource: _metadata(resource, "uid")),
        ]
    texts = [[read(named.resource) for _, read in columns] for named in rows]
    shown = [n for n in range(len(columns)) if any(row[n] for row in texts)]
    cells = [
        [(named.name, ""), *((row[n] or "-", _STYLES.get(row[n], "")) for n in shown)]
        for named, row in zip(rows, texts, strict=True)
    ]
    titles = [Column("NAME", may_shrink=True), *(columns[n][0] for n in shown)]
    if with_namespace:
        titles.insert(0, Column("NAMESPACE"))
        for named, line in zip(rows, cells, strict=True):
            line.insert(0, (_metadata(named.resource, "namespace"), ""))
    return table(titles, cells)


def age(resource: Resource, now: Instant) -> str:
    created = _metadata(resource, "creationTimestamp") or _text(_at(resource, "status", "startedAt"))
    try:
        return span(now - int(datetime.fromisoformat(created).timestamp() * SECOND)) if created else ""
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
