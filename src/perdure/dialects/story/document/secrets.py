"""References to secrets and config maps, where a document may not have them (STY-283)."""

from perdure.dialects.story.document.cursor import INVALID, Cursor
from perdure.dialects.story.values.references import CONFIG, SECRET, places
from perdure.expressions.gotemplate import is_template
from perdure.kernel import jsontext

HINT = "They count in `with` of steps with a `ref`, of Engrams and of templates, as texts without templates."


def refuse_secrets(cursor: Cursor, before: str = "") -> None:
    """Where a reference would become data of a run: the value that it stands for would be recorded."""
    for path in places(cursor.value, is_written=False):
        at = cursor.at(*path)
        name = CONFIG if CONFIG in at.value else SECRET
        at.problem(INVALID, f"{before}{name} would become data here", hint=HINT)


def refuse_computed(cursor: Cursor, before: str = "") -> None:
    """A name that a template gives comes from data, and data name no secret."""
    for path in places(cursor.value, is_written=False):
        at = cursor.at(*path)
        if is_template(jsontext.encode(at.value).decode()):
            name = CONFIG if CONFIG in at.value else SECRET
            at.problem(INVALID, f"{before}{name} must be written out: a template would let data name it", hint=HINT)
