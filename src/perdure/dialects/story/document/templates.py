"""Templates in a resource: does each parse, and does it read and call only what its place has? (STY-035, STY-036)"""

from typing import Any

from perdure.dialects.story.document.cursor import INVALID, Cursor, Found
from perdure.dialects.story.document.shapes import shown
from perdure.dialects.story.plan.step_graph import NO_REFERENCES, references_in
from perdure.dialects.story.values.template_roots import under
from perdure.expressions.gotemplate import BadStructure, Environment, References, Structure, is_condition, is_template


def check_condition(look: Cursor) -> None:
    """A plain text is a literal, and only a few of them mean anything (STY-061, STY-281)."""
    text = look.value
    if isinstance(text, str) and not is_template(text) and not is_condition(text):
        message = f"{shown(text)} can never be true: it is not a template, and not one of the words for true and false"
        look.warn(message, hint="Write a template such as {{ eq inputs.kind 'x' }}, or true or false.")


def check(look: Cursor, scope: Environment) -> References:
    """Every template in a value; returns what they read, as far as they are templates at all."""
    if look.value is None:
        return NO_REFERENCES
    try:
        return Structure(look.value, under(scope, look.findings.settings)).references
    except BadStructure as bad:
        for problem in bad.problems:
            finding = problem.finding
            message = problem.message if finding is None else finding.message
            hint = "" if finding is None else f"At {finding.position} of the template."
            look.findings.found.append(Found(INVALID, message, (*look.path, *problem.path), hint))
        return references_in(look.value)


def is_literal(value: Any) -> bool:
    """Whether a value is what it is before the run."""
    return isinstance(value, str) and not is_template(value)
