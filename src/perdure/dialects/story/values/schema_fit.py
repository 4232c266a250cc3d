"""Checking data against schemas at run time: fill in defaults and describe the remaining problems (STY-209).

A schema is compiled once per process. An invalid schema is reported like data that does not fit, so no run gets
stuck.
"""

from functools import lru_cache
from typing import Any

from perdure.dialects.story.values.references import is_reference
from perdure.dialects.story.values.schemas import BadSchema, CompiledSchema
from perdure.kernel.json_values import jsontext


def fitted(schema: Any, value: Any, later: dict[str, Any] | None = None) -> tuple[Any, str]:
    """The value with defaults, and a description of what does not fit; empty if all fits or there is no schema.

    `later` are templates of members that will lie over the value: they take part in the judgement, not in the result.
    """
    if schema is None:
        return value, ""
    compiled = compiled_schema(schema)
    if isinstance(compiled, str):
        return value, compiled
    completed = compiled.complete(value)
    if later:
        return completed, "; ".join(map(str, compiled.static_misfits({**completed, **later})))
    # Values that a worker will resolve cannot be checked here (STY-212).
    misfits = compiled.static_misfits(completed) if holds_reference(completed) else compiled.misfits(completed)
    return completed, "; ".join(map(str, misfits))


def misfits(schema: Any, value: Any) -> str:
    """A description of what does not fit in an output; no defaults are added."""
    compiled = None if schema is None else compiled_schema(schema)
    if compiled is None or isinstance(compiled, str):
        return compiled or ""
    return "; ".join(map(str, compiled.misfits(value)))


def compiled_schema(schema: Any) -> CompiledSchema | str:
    """The compiled schema, or why it is invalid."""
    return _compiled(jsontext.canonical(schema))


def holds_reference(value: Any) -> bool:
    if is_reference(value):
        return True
    inner: Any = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(holds_reference, inner))


@lru_cache(maxsize=256)
def _compiled(text: bytes) -> CompiledSchema | str:
    try:
        return CompiledSchema(jsontext.decode(text))
    except BadSchema as bad:
        return f"the schema is not valid: {bad}"
