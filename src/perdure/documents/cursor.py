"""A cursor over the values of a document: which value it is at, where that value is, and what is wrong with it.

Validation never stops at a problem: every rule adds its findings to the report, and the walk goes on. What the values
mean is for the language: each one derives a cursor of its own and, where its walk gathers more, a report of its own.
"""

from collections.abc import Iterator
from typing import Any, Generic, Self, TypeVar

import msgspec
from msgspec.structs import replace

from perdure.documents.document import Document
from perdure.documents.paths import Path, Step, spell
from perdure.kernel.documents.problems import Problem, Severity

_KINDS: dict[str, tuple[type, ...]] = {
    "an object": (dict,),
    "a map": (dict,),
    "an array": (list,),
    "a list": (list,),
    "a string": (str,),
    "a text": (str,),
    "a boolean": (bool,),
    "true or false": (bool,),
    "a number": (int, float),
    "a whole number": (int,),
    "a boolean or null": (bool, type(None)),
    "an object or null": (dict, type(None)),
}


class DocumentFinding(msgspec.Struct, frozen=True):
    """Something wrong with the value at a path, or (`is_key`) with the name of that member."""

    code: str
    message: str
    path: Path
    hint: str = ""
    severity: Severity = Severity.ERROR
    is_key: bool = False

    def to_problem(self, document: Document | None = None) -> Problem:
        """The problem for people: with line and column if there is a text to find them in."""
        if document is None:
            return Problem(self.code, self.message, spell(self.path), hint=self.hint, severity=self.severity)
        make = document.problem_of_key if self.is_key else document.problem
        return make(self.code, self.message, self.path, hint=self.hint, severity=self.severity)


class Report(msgspec.Struct, kw_only=True):
    """What the validation of one document gathers."""

    findings: list[DocumentFinding] = msgspec.field(default_factory=list)

    @property
    def has_errors(self) -> bool:
        return any(finding.severity is Severity.ERROR for finding in self.findings)


AnyReport = TypeVar("AnyReport", bound=Report)


class Cursor(msgspec.Struct, Generic[AnyReport], frozen=True, gc=False):
    report: AnyReport
    value: Any
    path: Path = ()

    def at(self, *steps: Step) -> Self:
        """The cursor at a value further in, which must exist."""
        value = self.value
        for step in steps:
            value = value[step]
        return replace(self, value=value, path=(*self.path, *steps))

    def items(self) -> Iterator[Self]:
        """A cursor for each item of a list; none if the value is not a list."""
        for index, item in enumerate(self.value if isinstance(self.value, list) else ()):
            yield replace(self, value=item, path=(*self.path, index))

    def members(self) -> Iterator[tuple[str, Self]]:
        """Each member of an object with its name; none if the value is not an object."""
        for name, member in self.value.items() if isinstance(self.value, dict) else ():
            yield str(name), replace(self, value=member, path=(*self.path, name))

    @property
    def name(self) -> str:
        """What to call the value in a message."""
        return repr(str(self.path[-1])) if self.path else "the document"

    def problem(self, code: str, message: str, *steps: Step, hint: str = "") -> None:
        self.report.findings.append(DocumentFinding(code, message, (*self.path, *steps), hint))

    def problem_of_key(
        self, code: str, message: str, key: str, *, hint: str = "", severity: Severity = Severity.ERROR
    ) -> None:
        """A problem with the name of a member: it is unknown, or not allowed here."""
        self.report.findings.append(DocumentFinding(code, message, (*self.path, key), hint, severity, is_key=True))

    def warn(self, code: str, message: str, *, hint: str = "") -> None:
        self.report.findings.append(DocumentFinding(code, message, self.path, hint, Severity.WARNING))

    def has(self, kind: str, code: str, hint: str = "") -> bool:
        """Whether the value is of the kind; reports if not. True and false are not numbers."""
        allowed = _KINDS[kind]
        if isinstance(self.value, allowed) and not (isinstance(self.value, bool) and bool not in allowed):
            return True
        self.problem(code, f"{self.name} must be {kind}", hint=hint)
        return False
