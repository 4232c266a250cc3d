"""Jinja templates for Playbooks: closed, metered, deterministic, the same answer everywhere.

    Template({"n": "{{ ctx.count + 1 }}", "text": "n is {{ ctx.count }}"}).render({"ctx": {"count": 4}})
    Guard("{{ ctx.approved }}").holds({"ctx": {}})          # False: undefined is harmless in a guard
    Guard("{{ ctx.approved }}").reads.touches("ctx", "approved")

The rooms, in the order a template passes them: program (with environment, rewriting, reads), and then values at work:
access, operators, filters, results. No clock, no randomness, no loader, nothing of Python behind the data.
"""

from perdure.expressions.jinja.budget import DEFAULT_LIMITS, Limits
from perdure.expressions.jinja.errors import (
    EvaluationFault,
    Forbidden,
    LimitExceeded,
    MissingValue,
    SyntaxFault,
    TemplateError,
)
from perdure.expressions.jinja.program import Program, compile_condition, compile_text, has_template
from perdure.expressions.jinja.reads import Reads
from perdure.expressions.jinja.results import Json
from perdure.expressions.jinja.template import Guard, Template
from perdure.expressions.jinja.truth import is_true

__all__ = [
    "DEFAULT_LIMITS",
    "EvaluationFault",
    "Forbidden",
    "Guard",
    "Json",
    "LimitExceeded",
    "Limits",
    "MissingValue",
    "Program",
    "Reads",
    "SyntaxFault",
    "Template",
    "TemplateError",
    "compile_condition",
    "compile_text",
    "has_template",
    "is_true",
]
