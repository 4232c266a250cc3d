"""Story's cursor over a resource: fields that do not exist, fields that only mean something to Kubernetes.

The code of a problem is its reason, as the contract calls it: `INVALID` unless a rule says otherwise.
"""

from collections.abc import Iterable, Sequence
from typing import Self

import msgspec
from msgspec.structs import replace

from perdure.dialects.story.plan.settings import DEFAULTS, Settings
from perdure.documents import cursor as documents
from perdure.documents.paths import Path, Step, spell
from perdure.kernel.problems import Severity, guess

INVALID = "ValidationFailed"
ENGRAM_REFERENCE = "EngramReferenceInvalid"
STORY_REFERENCE = "StoryReferenceInvalid"
TRANSPORT_REFERENCE = "TransportReferenceInvalid"
INPUT_SCHEMA = "InputSchemaFailed"

NOT_FOUND = "ReferenceNotFound"
NO_TEMPLATE = "TemplateNotFound"
KUBERNETES_ONLY = "KubernetesOnly"
DOUBTFUL = "Doubtful"


class Report(documents.Report):
    """Findings of one resource. `ignored` are its fields that only mean something to Kubernetes."""

    settings: Settings = DEFAULTS
    ignored: list[Path] = msgspec.field(default_factory=list)


class Cursor(documents.Cursor[Report], frozen=True):
    def at(self, *steps: Step) -> Self:
        """The cursor at a value further in; None if it does not exist."""
        value = self.value
        for step in steps:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                value = None
                break
        return replace(self, value=value, path=(*self.path, *steps))

    @property
    def spelled(self) -> str:
        return spell(self.path)

    def unknown(self, name: str, known: Sequence[str]) -> None:
        """A member that does not exist (STY-003)."""
        severity = Severity.WARNING if self.report.settings.is_lenient else Severity.ERROR
        hint = f"Allowed are: {', '.join(known)}." if known else ""
        self.problem_of_key(INVALID, f"unknown field {name!r}{guess(name, known)}", name, hint=hint, severity=severity)

    def warn_unread(self, known: Sequence[str]) -> None:
        """A step's `with` is free-form (STY-003), but members that its kind does not read have no effect."""
        for name, member in self.members():
            if name not in known:
                hint = f"Read are: {', '.join(known)}."
                member.warn(DOUBTFUL, f"has no effect here{guess(name, known)}", hint=hint)

    def ignore(self) -> None:
        """A field for Kubernetes alone: checked, kept, without effect (STY-004)."""
        self.report.ignored.append(self.path)

    def is_object(self) -> bool:
        if isinstance(self.value, dict):
            return True
        self.problem(INVALID, f"{self.spelled} must be a JSON object")
        return False


def listed(words: Iterable[str]) -> str:
    """`a, b or c`."""
    *some, last = words
    return f"{', '.join(some)} or {last}" if some else last
