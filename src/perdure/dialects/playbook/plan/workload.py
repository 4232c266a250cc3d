"""The inputs of an execution: the document's defaults under the request's values, frozen at the start (PBK-011)."""

from typing import Any

from perdure.expressions.jinja import Template, has_template


def merge_workload(
    defaults: Template,
    request: dict[str, Any],
    execution_id: str,
    env: dict[str, Any] | None = None,
    *,
    is_io: bool = False,
) -> dict[str, Any]:
    """`env` holds the variables that the request allowed and recorded (PBK-012).

    Raises `TemplateError` when a default cannot be rendered. Values of the request are data, never templates.
    """
    rendered: Any = defaults.document
    if not defaults.is_literal:
        literal = overlay(literals(defaults.document), request)
        scope = {"execution_id": execution_id, "workload": literal, "env": env or {}}
        if is_io:  # bare names and `job` (PBK-158)
            scope = {**literal, "job": {"uuid": execution_id}, **scope}
        rendered = defaults.render(scope)
    result: dict[str, Any] = overlay(rendered, request)
    return result


def overlay(under: Any, over: Any) -> Any:
    """Maps merge recursively; anything else on top replaces what is below."""
    if not (isinstance(under, dict) and isinstance(over, dict)):
        return over
    both = dict(under)
    for name, value in over.items():
        both[name] = overlay(under[name], value) if name in under else value
    return both


def literals(value: Any) -> Any:
    """The document without the members that are templates themselves."""
    if not isinstance(value, dict):
        return value
    return {
        name: literals(inner) for name, inner in value.items() if not (isinstance(inner, str) and has_template(inner))
    }
