"""The rules for a Flow object: the root, a named Flow, an inline Flow."""

from typing import Any

from msgspec.structs import replace

from perdure.dialects.flow.document import parts
from perdure.dialects.flow.document.cursor import Cursor, EnclosingFlow, Report, Rule, comment
from perdure.dialects.flow.plan.schemas import InvalidSchema, Parameters
from perdure.dialects.flow.steps import ACTIONS
from perdure.dialects.flow.steps.protocol import Action
from perdure.documents.paths import Path
from perdure.expressions.mwl import find_expression

FLOW_SCHEMA = "https://mwl.dev/v0.1/flow/schema.json"


def flow(cursor: Cursor, is_root: bool) -> None:
    if not cursor.has("an object", "MWL-021" if is_root else "MWL-022"):
        return
    cursor = replace(cursor, enclosing=EnclosingFlow(cursor.path, cursor.value, cursor.enclosing), level="step")
    members = FLOW
    if is_root:
        cursor.closed({"$schema": flow_schema, **members}, ("entrypoint", "steps"), subject="a Flow")
        if "$schema" not in cursor.value:
            cursor.problem("MWL-021", "the root Flow is missing '$schema'", hint=f'Write "$schema": "{FLOW_SCHEMA}".')
    else:
        cursor.closed(members, ("entrypoint", "steps"), subject="a Flow", foreign={"$schema": "MWL-021"})


def flow_schema(cursor: Cursor) -> None:
    if cursor.value != FLOW_SCHEMA:
        cursor.problem("MWL-021", f"'$schema' must be {FLOW_SCHEMA!r}")


def entrypoint(cursor: Cursor) -> None:
    assert cursor.enclosing is not None
    names = cursor.enclosing.raw.get("steps")
    if cursor.has("a string") and isinstance(names, dict) and cursor.value not in names:
        cursor.problem("MWL-023", f"there is no Step {cursor.value!r}{cursor.guess(cursor.value, list(names))}")


def middleware(cursor: Cursor) -> None:
    parts.flow_stack(replace(cursor, level="flow"))


def flows(cursor: Cursor) -> None:
    if cursor.has("an object"):
        for name in cursor.value:
            _plain_name(cursor, name, "a Flow")
            flow(cursor.at(name), is_root=False)


def steps(cursor: Cursor) -> None:
    if not cursor.has("an object"):
        return
    if not cursor.value:
        cursor.problem("MWL-023", "'steps' must hold at least one Step")
    for name in cursor.value:
        _plain_name(cursor, name, "a Step")
        _step(cursor.at(name))


def _plain_name(cursor: Cursor, name: str, subject: str) -> None:
    if find_expression(name) is not None:
        cursor.problem("MWL-042", f"the name of {subject} cannot be an expression", name)


def _step(cursor: Cursor) -> None:
    if not cursor.has("an object"):
        return
    if "action" not in cursor.value:
        cursor.problem("MWL-022", "a Step is missing 'action'", hint=f"One of {', '.join(ACTIONS)}.")
        return
    name = cursor.at("action")
    if not name.has("a string"):
        return
    action = ACTIONS.get(name.value)
    if action is None:
        near = cursor.guess(name.value, list(ACTIONS))
        name.problem("MWL-026", f"there is no action {name.value!r}{near}", hint=f"One of {', '.join(ACTIONS)}.")
    else:
        _members(cursor, action)
        action.check(cursor)


def _members(cursor: Cursor, action: Action) -> None:
    """The members of a Step; those of other actions are named as such (MWL-027)."""
    subject = f"a {action.name} Step"
    for name in action.required:
        if name not in cursor.value:
            cursor.problem("MWL-025" if name == "next" else action.code_of_missing, f"{subject} is missing {name!r}")
    foreign = {name: "MWL-027" for other in ACTIONS.values() for name in other.members}
    if action.is_terminal:
        foreign["next"] = "MWL-025"
    everywhere: dict[str, Rule] = {"action": lambda _: None, "comment": comment}
    cursor.closed({**everywhere, **action.members}, (), action.code_of_missing, subject, foreign)


def parameters(cursor: Cursor) -> None:
    if not cursor.has("an object", "MWL-033"):
        return
    if cursor.value.get("type") != "object":
        cursor.problem("MWL-033", '\'parameters\' must have "type": "object" at its top level')
        return
    properties = cursor.value.get("properties", {})
    if not isinstance(properties, dict):
        cursor.problem("MWL-033", "'properties' of the parameters must be an object", "properties")
        return
    try:
        Parameters(cursor.value).compile()
    except InvalidSchema as error:
        cursor.problem(
            "MWL-033", f"'parameters' is not a valid JSON Schema: {error}", *_existing_part(cursor, error.path)
        )


FLOW: dict[str, Rule] = {
    "entrypoint": entrypoint,
    "steps": steps,
    "flows": flows,
    "middleware": middleware,
    "parameters": parameters,
    "comment": comment,
}


def _existing_part(cursor: Cursor, path: Path) -> Path:
    """The part of a path that exists in the document; the validator may point at members that we added."""
    value: Any = cursor.value
    existing: list[str | int] = []
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError):
            break
        existing.append(step)
    return tuple(existing)


def report_cycles(report: Report, root: Cursor) -> None:
    """No Flow may reach itself (MWL-030, MWL-052): one problem for each call that closes a cycle."""
    done: set[Path] = set()
    for start in list(report.edges):
        if start in done:
            continue
        trail: dict[Path, None] = {start: None}
        pending = [(start, iter(report.edges.get(start, ())))]
        while pending:  # a list, not recursion: chains of calls may be long
            node, calls = pending[-1]
            step = next(calls, None)
            if step is None:
                pending.pop()
                trail.pop(node)
                done.add(node)
            elif step[0] in trail:
                message = "a Flow cannot call itself, directly or through others"
                root.problem(
                    "MWL-030", message, *step[1], hint="Repeat with a cycle of Steps, or with loop middleware."
                )
            elif step[0] not in done:
                trail[step[0]] = None
                pending.append((step[0], iter(report.edges.get(step[0], ()))))
