"""Go templates as Stories use them: compile once, render many times, the same answer everywhere.

    template = compile_template("Hello {{ inputs.name | upper }}")
    template.render({"inputs": {"name": "Ada"}})

The rooms, in the order a template passes them: tokens, parser (with pipelines and literals), references and checks,
planner, and then values at work: access, comparison, formatting, functions. `structure` walks JSON with templates.
"""

from perdure.expressions.errors import EvaluationFault, ExpressionError, Failure, LimitExceeded, SyntaxFault
from perdure.expressions.gotemplate.aliases import alias_of
from perdure.expressions.gotemplate.budget import Limits
from perdure.expressions.gotemplate.environment import Environment
from perdure.expressions.gotemplate.errors import BadStructure, MissingKey, NeedsStoredValue, TemplateProblem
from perdure.expressions.gotemplate.frame import Ambient
from perdure.expressions.gotemplate.functions import DETERMINISTIC, RUNTIME, Library
from perdure.expressions.gotemplate.references import References
from perdure.expressions.gotemplate.structure import Structure
from perdure.expressions.gotemplate.template import Template, compile_template, holds, is_condition, is_template
from perdure.expressions.problems import Finding

__all__ = [
    "DETERMINISTIC",
    "RUNTIME",
    "Ambient",
    "BadStructure",
    "Environment",
    "EvaluationFault",
    "ExpressionError",
    "Failure",
    "Finding",
    "Library",
    "LimitExceeded",
    "Limits",
    "MissingKey",
    "NeedsStoredValue",
    "References",
    "Structure",
    "SyntaxFault",
    "Template",
    "TemplateProblem",
    "alias_of",
    "compile_template",
    "holds",
    "is_condition",
    "is_template",
]
