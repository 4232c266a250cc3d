"""Errors of templates besides those that all expression languages share (`expressions.errors`).

`MissingKey` is raised when a plain path leads nowhere (yet), `NeedsStoredValue` when the value lies in storage.
"""

from dataclasses import dataclass, field

from perdure.expressions.errors import EvaluationFault, ExpressionError, Failure
from perdure.expressions.problems import Finding


@dataclass(frozen=True, slots=True)
class TemplateProblem:
    """What is wrong with one part of a value that holds templates; `place` is the path to it.

    `finding` is what compiling the template there found, when it was that.
    """

    place: str
    message: str
    path: tuple[str | int, ...] = field(default=(), compare=False)
    finding: Finding | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class BadStructure(ExpressionError):
    """A value that holds templates is not as it must be. Lists every problem."""

    def __init__(self, problems: tuple[TemplateProblem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


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
