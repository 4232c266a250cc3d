"""Go templates as Stories use them: compile once, render many times, with the same result everywhere.

    template = compile_template("Hello {{ inputs.name | upper }}")
    template.render({"inputs": {"name": "Ada"}})

The modules, in the order of processing: tokens, parser (with pipelines and literals), references and checks, planner;
then evaluation: access, comparison, formatting, functions. `structure` handles JSON values that contain templates.
Template inclusion is not supported, and what a Story does with a missing or stored value is decided by the Story.
"""

from perdure.expressions.errors import EvaluationFault, ExpressionError, Failure, LimitExceeded, SyntaxFault
from perdure.expressions.gotemplate.aliases import alias_of
from perdure.expressions.gotemplate.budget import Limits
from perdure.expressions.gotemplate.errors import BadStructure, MissingKey, NeedsStoredValue, TemplateProblem
from perdure.expressions.gotemplate.frame import Ambient
from perdure.expressions.gotemplate.functions import DETERMINISTIC, RUNTIME, Library
from perdure.expressions.gotemplate.references import References
from perdure.expressions.gotemplate.structure import Structure
from perdure.expressions.gotemplate.template import (
    Environment,
    Template,
    compile_template,
    holds,
    is_condition,
    is_template,
)
from perdure.expressions.source import ExpressionProblem

__all__ = [
    "DETERMINISTIC",
    "RUNTIME",
    "Ambient",
    "BadStructure",
    "Environment",
    "EvaluationFault",
    "ExpressionError",
    "ExpressionProblem",
    "Failure",
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
