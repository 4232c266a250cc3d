"""What can go wrong with a template, and how it is told.

`SyntaxFault` is raised by compiling. Everything a rendering raises is a `Failure`:
`EvaluationFault` when there is no value, `MissingKey` when a plain path leads nowhere (yet),
`NeedsStoredValue` when the value lies in storage, `LimitExceeded` when the template asks for too much.
Which of these a step waits for, retries or fails on is the dialect's business.
"""

from dataclasses import dataclass, field

from perdure.expressions.problems import Finding, Spanned
from perdure.expressions.source import Position, Source


class TemplateError(Exception):
    """Anything this room raises on purpose."""


class SyntaxFault(TemplateError):
    """The text is not a template of this language, or uses what its context does not allow."""

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        super().__init__("\n".join(str(finding) for finding in findings))
        self.findings = findings


class OutOfStack(SyntaxFault):
    """The caller left too little stack to compile. About this moment, not about the text: never remember it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one part of a value that holds templates; `place` is the path to it.

    `finding` is what compiling the template there found, when it was that.
    """

    place: str
    message: str
    path: tuple[str | int, ...] = field(default=(), compare=False)
    finding: Finding | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class BadStructure(TemplateError):
    """A value that holds templates is not as it must be. Lists every problem."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class Failure(TemplateError):
    """A failure of one rendering: a sentence, and once known the part of the template it is about."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.place = ""  # the path to the template, when it stands inside a larger value
        self.culprit: Spanned | None = None
        self.position: Position | None = None
        self.expression: str | None = None
        self._picture = ""

    def blame(self, culprit: Spanned) -> None:
        """Name the part of the template, unless a smaller one was named already."""
        if self.culprit is None:
            self.culprit = culprit

    def locate(self, source: Source) -> None:
        """Fill in position, expression and picture; a failure without a culprit stays as it is."""
        if self.culprit is None:
            return
        self.position = source.position(self.culprit.start)
        self.expression = source.fragment(self.culprit.start, self.culprit.end)
        self._picture = source.point_at(self.culprit.start)

    def __str__(self) -> str:
        place = f"{self.place}: " if self.place else ""
        if self.position is None:
            return place + self.message
        return f"{place}{self.position}: {self.message}, in `{self.expression}`\n{self._picture}"


class EvaluationFault(Failure):
    """The template has no value for these data."""


class MissingKey(EvaluationFault):
    """A plain path leads to nothing. Under `steps` it may appear later (STY-200): ask `root`."""

    def __init__(self, root: str, path: str) -> None:
        super().__init__(f"missing key at {path}")
        self.root = root
        self.path = path


class NeedsStoredValue(Failure):
    """The template looks into a value that was offloaded to storage (STY-207).

    Hydrate `reference`, bind the value in its place and render again, or refuse: both are the dialect's choice.
    """

    def __init__(self, reference: dict[str, object]) -> None:
        super().__init__(f"this needs the offloaded value {reference['$bubuStorageRef']!r}")
        self.reference = reference


class LimitExceeded(Failure):
    """The template asked for more steps, output or size than it was given."""
