"""What can go wrong with a template, and how it is told.

Every error has a code that programs may rely on, a sentence, and, once located, its place in the template.
Whether a guard that fails is false, or a value that fails ends a step, is the dialect's business.
"""

from typing import ClassVar

from perdure.expressions.source import Position, Source


class TemplateError(Exception):
    """Anything this room raises on purpose. Nothing else leaves it."""

    code: ClassVar[str] = "TEMPLATE"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.position: Position | None = None
        self.expression: str | None = None
        self.path: tuple[str | int, ...] = ()  # of the string that is to blame, when it stands in a larger value
        self._picture = ""

    def locate(self, source: Source, offset: int, fragment: str) -> None:
        """Say where; the place that was said first is the smaller one and stays."""
        if self.position is None:
            self.position = source.position(offset)
            self.expression = fragment
            self._picture = source.point_at(offset)

    def __str__(self) -> str:
        if self.position is None:
            return self.message
        return f"{self.position}: {self.message}, in `{self.expression}`\n{self._picture}"


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
