"""Other names for fields: documents of earlier and later releases of the language use them for what it has.

They are replaced before a document is checked, on a copy, and where the field itself is not given. What a field may
contain is decided by the checks of the field that it stands for; `moved` says where the author wrote it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from perdure.dialects.playbook.document.tool_forms import tasks_of, workbook_entries
from perdure.documents.paths import Path
from perdure.kernel.lazy_regex import lazy_regex

DATABASES = ("postgres", "duckdb", "sqlite")
FIELDS: Mapping[str, Mapping[str, str]] = {
    "http": {"endpoint": "url"},
    "playbook": {"payload": "args"},
    **{kind: {"credential": "auth"} for kind in DATABASES},
}
"""By kind of task: the other name, and the field."""

TIMEOUTS = ("timeout", "timeout_seconds")
RESULTS = ("output", "result")  # of a step; of a task only the first, since some kinds have a field `result`
KEYCHAIN_KINDS = {"secrets": "secret_manager", "credential": "credential_ref"}

Moves = dict[Path, Path]
"""From the path of a field to that of its other name."""


def replace_aliases(data: Any, moved: Moves) -> Any:
    """The document with the names that the language has; the same object if it uses no others."""
    if not isinstance(data, dict):
        return data
    changes: dict[str, Any] = {}
    workflow = data.get("workflow")
    entries = workbook_entries(data.get("workbook"))
    if isinstance(workflow, list):
        steps = [_step(step, ("workflow", index), entries, moved) for index, step in enumerate(workflow)]
        if any(new is not step for new, step in zip(steps, workflow, strict=True)):
            changes["workflow"] = steps
    for path, body in entries.values():
        new = _task(body, ("workbook", *path), entries, moved)
        if new is not body:
            changes["workbook"] = _with(changes.get("workbook", data["workbook"]), path, new)
    keychain = data.get("keychain")
    if isinstance(keychain, list) and any(_is_alias(entry) for entry in keychain):
        changes["keychain"] = [
            {**entry, "kind": KEYCHAIN_KINDS[entry["kind"]]} if _is_alias(entry) else entry for entry in keychain
        ]
    return _with_each_statement({**data, **changes} if changes else data)


def _is_alias(entry: Any) -> bool:
    kind = entry.get("kind") if isinstance(entry, dict) else None
    return isinstance(kind, str) and kind in KEYCHAIN_KINDS


def _step(step: Any, path: Path, workbook: Mapping[str, Any], moved: Moves) -> Any:
    if not isinstance(step, dict):
        return step
    new = _with_results(step, path, RESULTS, moved)
    if "set_ctx" in new and "set" not in new:
        new = _renamed(new, "set_ctx", "set", path, moved)
    for task in tasks_of(str(step.get("step", "")), step.get("tool")):
        body = _task(task.body, (*path, "tool", *task.path), workbook, moved)
        if body is not task.body:
            new = _with(new, ("tool", *task.path), body)
    return new


def _task(body: Any, path: Path, workbook: Mapping[str, Any], moved: Moves) -> Any:
    kind = body.get("kind") if isinstance(body, dict) else None
    if not isinstance(kind, str):
        return body
    for alias, field in FIELDS.get(kind, {}).items():
        if alias in body and field not in body:
            body = _renamed(body, alias, field, path, moved)
    if kind == "workbook" and "task" not in body and isinstance(name := body.get("name"), str) and name in workbook:
        body = {**body, "task": name}
        moved[(*path, "task")] = (*path, "name")
    if isinstance(body.get("auth"), dict) and (name := _credential_named(body["auth"])) is not None:
        body = {**body, "auth": name}
    if kind == "python" and body.get("auth", 0) in ({}, None):
        body = {name: value for name, value in body.items() if name != "auth"}
    if "output_select" in body and "output" not in body:
        body = _renamed(body, "output_select", "output", path, moved)
        body["output"] = _settings_of_selection(body["output"])
    body = _with_results(body, path, RESULTS[:1], moved)
    for alias in TIMEOUTS:
        if alias in body:
            body = _moved_to_spec(body, alias, "timeout", path, moved)
    if kind in DATABASES and "pool" in body:
        body = _moved_to_spec(body, "pool", "pool", path, moved)
    return body


_EACH_STATEMENT = lazy_regex(r"\bcommand_\d")


def _with_each_statement(data: dict[str, Any]) -> dict[str, Any]:
    """A document that reads the results of single statements (`command_0`) gets them."""
    workflow = data.get("workflow")
    if not isinstance(workflow, list) or not any(_EACH_STATEMENT.search(text) for text in _texts(workflow)):
        return data
    steps = list(workflow)
    for index, step in enumerate(steps):
        for task in tasks_of(str(step.get("step", "")), step.get("tool")) if isinstance(step, dict) else ():
            spec = task.body.get("spec") or {} if isinstance(task.body, dict) else None
            if isinstance(spec, dict) and task.body.get("kind") in DATABASES:
                body = {**task.body, "spec": {"each_statement": True, **spec}}
                steps[index] = _with(steps[index], ("tool", *task.path), body)
    return {**data, "workflow": steps}


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for inner in value.values():
                yield from _texts(inner)
        case list():
            for inner in value:
                yield from _texts(inner)


def _credential_named(auth: dict[str, Any]) -> str | None:
    """`auth: {type: postgres, credential: NAME}` is `auth: NAME`."""
    name = auth.get("credential", auth.get("key") if auth.get("source") == "credential" else None)
    return name if isinstance(name, str) and not auth.keys() - {"type", "source", "tool", "credential", "key"} else None


def _with_results(place: dict[str, Any], path: Path, names: tuple[str, ...], moved: Moves) -> dict[str, Any]:
    """With `spec.result`: there the names of parts are paths (PBK-173)."""
    for alias in names:
        settings = place.get(alias)
        if not isinstance(settings, dict):
            continue
        selection = settings.get("output_select", settings.get("select"))
        result = {name: value for name, value in settings.items() if name not in ("output_select", "select")}
        if isinstance(selection, list):
            result["select"] = _selected(selection)
        place = _moved_to_spec({**place, alias: result}, alias, "result", path, moved)
    return place


def _settings_of_selection(selection: Any) -> Any:
    """`output_select` of a task: what is selected, or from which size on its result is stored."""
    match selection:
        case list():
            return {"output_select": selection}
        case {"threshold_kb": int(size), **others} if not others.keys() - {"strategy"}:
            return {"inline_max_bytes": size * 1024}
    return selection


def _selected(selection: list[Any]) -> list[Any]:
    """`a.b` is extracted as `a_b`, and as `b` if nothing else is."""
    items = [
        {"path": f"$.{name}", "as": name.replace(".", "_")} if isinstance(name, str) else name for name in selection
    ]
    taken = {item["as"] for item in items if isinstance(item, dict) and isinstance(item.get("as"), str)}
    for name in selection:
        last = name.rpartition(".")[2] if isinstance(name, str) else ""
        if last and last not in taken:
            taken.add(last)
            items.append({"path": f"$.{name}", "as": last})
    return items


def _moved_to_spec(place: dict[str, Any], alias: str, field: str, path: Path, moved: Moves) -> dict[str, Any]:
    """A member of `spec` instead, unless that is given: then both stay, and the checks refuse the other name."""
    spec = place.get("spec") or {}
    if not isinstance(spec, dict) or field in spec:
        return place
    moved[(*path, "spec", field)] = (*path, alias)
    return {**{name: value for name, value in place.items() if name != alias}, "spec": {**spec, field: place[alias]}}


def _renamed(place: dict[str, Any], alias: str, field: str, path: Path, moved: Moves) -> dict[str, Any]:
    moved[(*path, field)] = (*path, alias)
    return {field if name == alias else name: value for name, value in place.items()}


def _with(value: Any, path: Path, new: Any) -> Any:
    """A copy with something else at this path."""
    if not path:
        return new
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _with(value[path[0]], path[1:], new)
    return copy
