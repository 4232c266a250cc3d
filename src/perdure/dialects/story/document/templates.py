"""Checks of the templates in a resource: each must parse, and read and call only what is available there (STY-035,
STY-036).
"""

import re
from typing import Any

from perdure.dialects.story.document.cursor import DOUBTFUL, INVALID, Cursor
from perdure.dialects.story.document.shapes import shown
from perdure.dialects.story.plan.step_graph import NO_REFERENCES, references_in
from perdure.dialects.story.values.template_roots import STREAMING_STATIC, under
from perdure.expressions.gotemplate import BadStructure, Environment, References, Structure, is_condition, is_template
from perdure.kernel.lazy_regex import lazy_regex

_PATH = lazy_regex(r"\.?(?:inputs|steps)(?:\.\w+)+")
_COMPARISON = lazy_regex(
    r"(?P<left>\.?(?:inputs|steps)(?:\.\w+)+)\s*(?P<operator>==|!=|>=|<=|>|<)\s*"
    r"(?P<right>'[^']*'|\"[^\"]*\"|[\w.]+)"
)


def check_condition(cursor: Cursor) -> None:
    """Warn about a condition that is plain text and not one of the literals for true and false (STY-061, STY-281)."""
    text = cursor.value
    if isinstance(text, str) and not is_template(text) and not is_condition(text):
        message = f"{shown(text)} can never be true: it is neither a template nor a literal for true or false"
        cursor.warn(DOUBTFUL, message, hint=_advice(text))


def _advice(text: str) -> str:
    """How to write such a condition, in the words of the author if it is a comparison or a path."""
    compared = _COMPARISON.fullmatch(text.strip())
    if compared is not None:
        function = {"==": "eq", "!=": "ne", ">": "gt", ">=": "ge", "<": "lt", "<=": "le"}[compared["operator"]]
        literal = re.sub(r"^'(.*)'$", r'"\1"', compared["right"])
        return f"Write {{{{ {function} {compared['left']} {literal} }}}}."
    if _PATH.fullmatch(text.strip()):
        return f"Write {{{{ {text.strip()} }}}}."
    return 'Write a template such as {{ eq inputs.kind "x" }}, or true or false.'


def _readable(message: str, scope: Environment) -> str:
    if "context " not in message or scope.roots is None:
        return ""
    return f" Allowed are: {', '.join(sorted(scope.roots))}."


def check(cursor: Cursor, scope: Environment) -> References:
    """Check every template in a value; returns what the valid ones read."""
    if cursor.value is None:
        return NO_REFERENCES
    try:
        return Structure(cursor.value, under(scope, cursor.report.settings)).references
    except BadStructure as bad:
        for problem in bad.problems:
            finding = problem.finding
            message = problem.message if finding is None else finding.message
            hint = "" if finding is None else f"At {finding.position} of the template.{_readable(message, scope)}"
            if scope is STREAMING_STATIC and message.startswith("context "):
                hint += " Read it in `runtime`, which is rendered for every packet."
            cursor.problem(INVALID, message, *problem.path, hint=hint)
        return references_in(cursor.value)


def is_templated(cursor: Cursor) -> bool:
    """Whether a template computes the whole value."""
    if isinstance(cursor.value, dict):
        return "$bubuTemplate" in cursor.value
    return isinstance(cursor.value, str) and is_template(cursor.value)


def is_literal(value: Any) -> bool:
    """Whether a value is known before the run."""
    return isinstance(value, str) and not is_template(value)
