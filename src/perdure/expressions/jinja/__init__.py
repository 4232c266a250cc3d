"""Jinja templates for Playbooks: closed, metered, deterministic, with the same result everywhere.

    Template({"n": "{{ ctx.count + 1 }}", "text": "n is {{ ctx.count }}"}).render({"ctx": {"count": 4}})
    Guard("{{ ctx.approved }}").holds({"ctx": {}})          # False: undefined is harmless in a guard
    Guard("{{ ctx.approved }}").reads.touches("ctx", "approved")

The modules, in the order of processing: program (with environment, rewriter, reads); then evaluation: access,
operators, filters, results. There is no clock, no randomness, no loader and no access to Python's internals.
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
from perdure.expressions.jinja.reads import TemplateReads, all_reads
from perdure.expressions.jinja.results import Json
from perdure.expressions.jinja.template import Guard, Template
from perdure.expressions.jinja.template_analysis import TemplateAnalysis, analyse
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
    "SyntaxFault",
    "Template",
    "TemplateAnalysis",
    "TemplateError",
    "TemplateReads",
    "all_reads",
    "analyse",
    "compile_condition",
    "compile_text",
    "has_template",
    "is_true",
]
