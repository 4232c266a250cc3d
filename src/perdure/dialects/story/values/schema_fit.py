"""Data against schemas at run time: completed by their defaults, and what is still wrong, in one sentence (STY-209).

A schema is compiled once per process. One that is none is told like data that do not fit: no run is stuck on it.
"""

from functools import lru_cache
from typing import Any

from perdure.dialects.story.values.references import is_reference
from perdure.dialects.story.values.schemas import BadSchema, CompiledSchema
from perdure.kernel import jsontext


def fitted(schema: Any, value: Any) -> tuple[Any, str]:
    """The value with defaults, and what does not fit; empty when all does. No schema, nothing to say."""
    if schema is None:
        return value, ""
    known = compiled_schema(schema)
    if isinstance(known, str):
        return value, known
    completed = known.complete(value)
    # What a worker hydrates cannot be judged here; everything else is judged as it is (STY-212).
    misfits = known.static_misfits(completed) if holds_reference(completed) else known.misfits(completed)
    return completed, "; ".join(map(str, misfits))


def misfits(schema: Any, value: Any) -> str:
    """What of an output does not fit; nothing is added to it."""
    known = None if schema is None else compiled_schema(schema)
    if known is None or isinstance(known, str):
        return known or ""
    return "; ".join(map(str, known.misfits(value)))


def compiled_schema(schema: Any) -> CompiledSchema | str:
    """The schema, or why it is none."""
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
