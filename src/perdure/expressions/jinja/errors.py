"""Errors of templates, with the codes that programs may rely on.

Every error has a code, a message and, once located, its place in the template.
Whether a guard that fails is false, or a value that fails ends a step, is decided by the dialect.
"""

from typing import ClassVar

from perdure.expressions.errors import LocatedError
from perdure.expressions.source import Source


class TemplateError(LocatedError):
    """Base of all errors that a template raises. No other exception leaves this package."""

    code: ClassVar[str] = "TEMPLATE"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.path: tuple[str | int, ...] = ()  # of the text with the error, if it is part of a larger value

    def locate(self, source: Source, offset: int, fragment: str) -> None:
        """Set the place; the one that was set first is the smaller one and is kept."""
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
    """The template tried to access something that is not data: Python's internals, or a change of data."""

    code = "TEMPLATE-FORBIDDEN"


class LimitExceeded(TemplateError):
    """The template needed more steps, depth, size or output than allowed."""

    code = "TEMPLATE-LIMIT"


class EvaluationFault(TemplateError):
    """The operation has no result for these data, or the result has no JSON form."""

    code = "TEMPLATE-VALUE"
