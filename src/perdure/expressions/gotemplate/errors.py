"""Errors of templates besides those that all expression languages share (`expressions.errors`).

`MissingKey` is raised when a plain path leads nowhere (yet), `NeedsStoredValue` when the value is in storage.
"""

from dataclasses import dataclass, field

from perdure.expressions.errors import EvaluationFault, ExpressionError, Failure
from perdure.expressions.source import ExpressionProblem


@dataclass(frozen=True, slots=True)
class TemplateProblem:
    """What is wrong with one part of a value that contains templates; `place` is the path to it.

    `finding` is the problem reported by compiling the template there, if there is one.
    """

    place: str
    message: str
    path: tuple[str | int, ...] = field(default=(), compare=False)
    finding: ExpressionProblem | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class BadStructure(ExpressionError):
    """A value that contains templates is malformed. Lists every problem."""

    def __init__(self, problems: tuple[TemplateProblem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class MissingKey(EvaluationFault):
    """A plain path leads to nothing. Under `steps` it may appear later (STY-200): see `root`."""

    def __init__(self, root: str, path: str) -> None:
        super().__init__(f"missing key at {path}")
        self.root = root
        self.path = path


class NeedsStoredValue(Failure):
    """The template reads a value that was offloaded to storage (STY-207).

    Hydrate `reference`, bind the value in its place and render again, or refuse: the dialect decides.
    """

    def __init__(self, reference: dict[str, object]) -> None:
        super().__init__(f"this needs the offloaded value {reference['$bubuStorageRef']!r}")
        self.reference = reference


class NotJson(ValueError):
    """The text is not JSON."""
