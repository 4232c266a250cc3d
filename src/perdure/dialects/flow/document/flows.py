"""A Flow object: the root, a named one, an inline one."""

from typing import Any

from msgspec.structs import replace

from perdure.dialects.flow.document import parts
from perdure.dialects.flow.document.cursor import Context, Cursor, Path, Report, comment
from perdure.dialects.flow.plan.schemas import BadSchema, Parameters
from perdure.dialects.flow.steps import ACTIONS
from perdure.expressions.mwl import find_expression

FLOW_SCHEMA = "https://mwl.dev/v0.1/flow/schema.json"


def flow(look: Cursor, is_root: bool) -> None:
    if not look.has("an object", "MWL-021" if is_root else "MWL-022"):
        return
    look = replace(look, around=Context(look.path, look.value, look.around), level="step")
    members = {
        "entrypoint": _entrypoint,
        "steps": _steps,
        "flows": _flows,
        "middleware": _stack,
        "parameters": _parameters,
        "comment": comment,
    }
    if is_root:
        look.closed({"$schema": _schema, **members}, ("entrypoint", "steps"), what="a Flow")
        if "$schema" not in look.value:
            look.problem("MWL-021", "the root Flow lacks '$schema'", hint=f'Write "$schema": "{FLOW_SCHEMA}".')
    else:
        look.closed(members, ("entrypoint", "steps"), what="a Flow", foreign={"$schema": "MWL-021"})


def _schema(look: Cursor) -> None:
    if look.value != FLOW_SCHEMA:
        look.problem("MWL-021", f"'$schema' must be {FLOW_SCHEMA!r}")


def _entrypoint(look: Cursor) -> None:
    assert look.around is not None
    steps = look.around.raw.get("steps")
    if look.has("a string") and isinstance(steps, dict) and look.value not in steps:
        look.problem("MWL-023", f"there is no Step {look.value!r}{look.guess(look.value, list(steps))}")


def _stack(look: Cursor) -> None:
    parts.flow_stack(replace(look, level="flow"))


def _flows(look: Cursor) -> None:
    if look.has("an object"):
        for name in look.value:
            _plain_name(look, name, "a Flow")
            flow(look.at(name), is_root=False)


def _steps(look: Cursor) -> None:
    if not look.has("an object"):
        return
    if not look.value:
        look.problem("MWL-023", "'steps' must hold at least one Step")
    for name in look.value:
        _plain_name(look, name, "a Step")
        _step(look.at(name))


def _plain_name(look: Cursor, name: str, what: str) -> None:
    if find_expression(name) is not None:
        look.problem("MWL-042", f"the name of {what} cannot be an expression", name)


def _step(look: Cursor) -> None:
    if not look.has("an object"):
        return
    if "action" not in look.value:
        look.problem("MWL-022", "a Step lacks 'action'", hint=f"One of {', '.join(ACTIONS)}.")
        return
    name = look.at("action")
    if not name.has("a string"):
        return
    action = ACTIONS.get(name.value)
    if action is None:
        near = look.guess(name.value, list(ACTIONS))
        name.problem("MWL-026", f"there is no action {name.value!r}{near}", hint=f"One of {', '.join(ACTIONS)}.")
    else:
        action.check(look)


def _parameters(look: Cursor) -> None:
    if not look.has("an object", "MWL-033"):
        return
    if look.value.get("type") != "object":
        look.problem("MWL-033", '\'parameters\' must say "type": "object" at its top level')
        return
    properties = look.value.get("properties", {})
    if not isinstance(properties, dict):
        look.problem("MWL-033", "'properties' of the parameters must be an object", "properties")
        return
    try:
        Parameters(look.value).compile()
    except BadSchema as error:
        look.problem("MWL-033", f"'parameters' is no valid JSON Schema: {error}", *_existing(look, error.path))


def _existing(look: Cursor, path: Path) -> Path:
    """As much of a path as the document has; the validator may point at what we added ourselves."""
    value: Any = look.value
    found: list[str | int] = []
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError):
            break
        found.append(step)
    return tuple(found)


def report_cycles(findings: Report, root: Cursor) -> None:
    """No Flow may reach itself (MWL-030, MWL-052): one problem for each call that closes a circle."""
    done: set[Path] = set()
    for start in list(findings.edges):
        if start in done:
            continue
        trail: dict[Path, None] = {start: None}
        pending = [(start, iter(findings.edges.get(start, ())))]
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
                pending.append((step[0], iter(findings.edges.get(step[0], ()))))
