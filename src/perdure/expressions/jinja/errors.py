"""Errors of templates, with the codes that programs may rely on.

Every error has a code, a message and, once located, its place in the template.
Whether a guard that fails is false, or a value that fails ends a step, is decided by the dialect.
"""

from typing import ClassVar

from perdure.expressions.errors import LocatedError
from perdure.expressions.source import Source


class TemplateError(LocatedError):
    """Base of all errors that a template raises. Nothing else leaves this package."""

    code: ClassVar[str] = "TEMPLATE"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.path: tuple[str | int, ...] = ()  # of the text at fault, when it stands in a larger value

    def locate(self, source: Source, offset: int, fragment: str) -> None:
        """Set the place; the one that was set first is the smaller one and stays."""
        if self.position is None:
            self._locate(source, offset, fragment)


class SyntaxFault(TemplateError):
    """The text is not a template, or uses a part of Jinja that does not exist here."""

    code = "TEMPLATE-SYNTAX"


class MissingValue(TemplateError):
    """Something undefined was needed; `name` is what is missing."""

    code = "TEMPLATE-UNDEFINED"

    def __init__(self, message: str, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


class Forbidden(TemplateError):
    """The template reached for what is not data: Python's insides, or a change of data."""

    code = "TEMPLATE-FORBIDDEN"


class LimitExceeded(TemplateError):
    """The template asked for more steps, depth, size or output than it was given."""

    code = "TEMPLATE-LIMIT"


class EvaluationFault(TemplateError):
    """The operation has no answer for these data, or the answer has no form in JSON."""

    code = "TEMPLATE-VALUE"
