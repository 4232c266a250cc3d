"""A look at one value of a resource: what it should be, and where it stands if it is not. No problem stops it.

The code of a problem is its reason, as the contract calls it: `ValidationFailed` unless a rule says otherwise.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from perdure.dialects.story.plan.settings import DEFAULTS, Settings
from perdure.documents import spell
from perdure.kernel.problems import Severity, guess

Path = tuple[str | int, ...]

INVALID = "ValidationFailed"
ENGRAM_REFERENCE = "EngramReferenceInvalid"
STORY_REFERENCE = "StoryReferenceInvalid"
TRANSPORT_REFERENCE = "TransportReferenceInvalid"
INPUT_SCHEMA = "InputSchemaFailed"

NOT_FOUND = "ReferenceNotFound"
NO_TEMPLATE = "TemplateNotFound"
KUBERNETES_ONLY = "KubernetesOnly"
DOUBTFUL = "Doubtful"


class Found(msgspec.Struct, frozen=True):
    code: str
    message: str
    path: Path
    hint: str = ""
    severity: Severity = Severity.ERROR
    is_key: bool = False


class Report(msgspec.Struct):
    """What a walk over one resource gathers. `ignored` are its fields that only mean something to Kubernetes."""

    settings: Settings = DEFAULTS
    found: list[Found] = msgspec.field(default_factory=list)
    ignored: list[Path] = msgspec.field(default_factory=list)

    @property
    def has_errors(self) -> bool:
        return any(one.severity is Severity.ERROR for one in self.found)


class Cursor(msgspec.Struct, frozen=True, gc=False):
    findings: Report
    value: Any
    path: Path = ()

    def at(self, *steps: str | int) -> "Cursor":
        """Further in; what is not there is None."""
        value = self.value
        for step in steps:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                value = None
                break
        return Cursor(self.findings, value, (*self.path, *steps))

    def items(self) -> Iterator["Cursor"]:
        for index, item in enumerate(self.value if isinstance(self.value, list) else ()):
            yield Cursor(self.findings, item, (*self.path, index))

    def members(self) -> Iterator[tuple[str, "Cursor"]]:
        for name, member in self.value.items() if isinstance(self.value, dict) else ():
            yield str(name), Cursor(self.findings, member, (*self.path, name))

    @property
    def spelled(self) -> str:
        return spell(self.path)

    def problem(self, message: str, *, code: str = INVALID, hint: str = "") -> None:
        self.findings.found.append(Found(code, message, self.path, hint))

    def warn(self, message: str, *, code: str = DOUBTFUL, hint: str = "") -> None:
        self.findings.found.append(Found(code, message, self.path, hint, Severity.WARNING))

    def unknown(self, name: str, known: Sequence[str]) -> None:
        """A member that does not exist (STY-003)."""
        severity = Severity.WARNING if self.findings.settings.is_lenient else Severity.ERROR
        hint = f"Allowed are: {', '.join(known)}." if known else ""
        message = f"unknown field {name!r}{guess(name, known)}"
        self.findings.found.append(Found(INVALID, message, (*self.path, name), hint, severity, is_key=True))

    def ignore(self) -> None:
        """A field for Kubernetes alone: checked, kept, without effect (STY-004)."""
        self.findings.ignored.append(self.path)

    def is_object(self) -> bool:
        if isinstance(self.value, dict):
            return True
        self.problem(f"{self.spelled} must be a JSON object")
        return False


def listed(words: Iterable[str]) -> str:
    """`a, b or c`."""
    *some, last = words
    return f"{', '.join(some)} or {last}" if some else last
