"""Templates in a resource: does each parse, and does it read and call only what its place has? (STY-035, STY-036)"""

from typing import Any

from perdure.dialects.story.document.cursor import DOUBTFUL, INVALID, Cursor
from perdure.dialects.story.document.shapes import shown
from perdure.dialects.story.plan.step_graph import NO_REFERENCES, references_in
from perdure.dialects.story.values.template_roots import under
from perdure.expressions.gotemplate import BadStructure, Environment, References, Structure, is_condition, is_template


def check_condition(cursor: Cursor) -> None:
    """A plain text is a literal, and only a few of them mean anything (STY-061, STY-281)."""
    text = cursor.value
    if isinstance(text, str) and not is_template(text) and not is_condition(text):
        message = f"{shown(text)} can never be true: it is not a template, and not one of the words for true and false"
        cursor.warn(DOUBTFUL, message, hint="Write a template such as {{ eq inputs.kind 'x' }}, or true or false.")


def check(cursor: Cursor, scope: Environment) -> References:
    """Every template in a value; returns what they read, as far as they are templates at all."""
    if cursor.value is None:
        return NO_REFERENCES
    try:
        return Structure(cursor.value, under(scope, cursor.report.settings)).references
    except BadStructure as bad:
        for problem in bad.problems:
            finding = problem.finding
            message = problem.message if finding is None else finding.message
            hint = "" if finding is None else f"At {finding.position} of the template."
            cursor.problem(INVALID, message, *problem.path, hint=hint)
        return references_in(cursor.value)


def is_templated(cursor: Cursor) -> bool:
    """Whether a value is computed by a template as a whole."""
    if isinstance(cursor.value, dict):
        return "$bubuTemplate" in cursor.value
    return isinstance(cursor.value, str) and is_template(cursor.value)


def is_literal(value: Any) -> bool:
    """Whether a value is what it is before the run."""
    return isinstance(value, str) and not is_template(value)
