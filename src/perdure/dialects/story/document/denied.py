"""Functions no template may call, looked for where a template need not be right otherwise (STY-050, STY-100)."""

from perdure.dialects.story.document.cursor import Cursor
from perdure.expressions.gotemplate import RUNTIME, BadStructure, Environment, Structure

_ANYTHING = Environment(library=RUNTIME)


def check(look: Cursor) -> None:
    try:
        Structure(look.value, _ANYTHING)
    except BadStructure as bad:
        for problem in bad.problems:
            if problem.finding is not None and problem.finding.message in RUNTIME.denied.values():
                look.at(*problem.path).problem(problem.finding.message)
