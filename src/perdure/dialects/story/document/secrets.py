"""Checks for references to secrets and config maps where they are not allowed (STY-283)."""

from perdure.dialects.story.document.cursor import INVALID, Cursor
from perdure.dialects.story.values.references import CONFIG, SECRET, places
from perdure.expressions.gotemplate import is_template
from perdure.kernel.json_values import jsontext

HINT = (
    "They are allowed in `with` of steps with a `ref`, of Engrams and of templates, as plain strings without templates."
)


def refuse_secrets(cursor: Cursor, prefix: str = "") -> None:
    """Report references in a place whose value becomes data of the run: the secret would be recorded."""
    for path in places(cursor.value, is_written=False):
        reference = cursor.at(*path)
        name = CONFIG if CONFIG in reference.value else SECRET
        reference.problem(
            INVALID, f"{prefix}{name} is not allowed here: its value would become data of the run", hint=HINT
        )


def refuse_computed(cursor: Cursor, prefix: str = "") -> None:
    """Report references inside templates: data must not choose a secret, and what a template reads becomes data."""
    written = list(places(cursor.value, is_written=False))
    allowed = set(places(cursor.value)) if written else ()
    for path in written:
        if path in allowed:
            continue
        reference = cursor.at(*path)
        name = CONFIG if CONFIG in reference.value else SECRET
        if is_template(jsontext.encode(reference.value).decode()):
            reference.problem(
                INVALID, f"{prefix}{name} must not be a template: data must not choose the name", hint=HINT
            )
        else:
            reference.problem(INVALID, f"{prefix}{name} is not allowed here: templates cannot read secrets", hint=HINT)
