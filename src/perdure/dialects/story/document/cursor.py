"""Story's cursor over a resource. It reports unknown fields and records fields that only Kubernetes uses.

The code of a problem is the reason in the contract: `INVALID` unless a rule says otherwise.
"""

from collections.abc import Iterable, Sequence
from typing import Self

import msgspec
from msgspec.structs import replace

from perdure.dialects.story.plan.settings import DEFAULTS, Settings
from perdure.documents import cursor as documents
from perdure.documents.paths import Path, Step, spell
from perdure.kernel.documents.problems import Severity, guess

INVALID = "ValidationFailed"
ENGRAM_REFERENCE = "EngramReferenceInvalid"
STORY_REFERENCE = "StoryReferenceInvalid"
TRANSPORT_REFERENCE = "TransportReferenceInvalid"
INPUT_SCHEMA = "InputSchemaFailed"

NOT_FOUND = "ReferenceNotFound"
NO_TEMPLATE = "TemplateNotFound"
REFUSED = "PolicyRefused"
KUBERNETES_ONLY = "KubernetesOnly"
DOUBTFUL = "Doubtful"


class Report(documents.Report):
    """The findings of one resource. `ignored` holds the paths of fields that only Kubernetes uses."""

    settings: Settings = DEFAULTS
    ignored: list[Path] = msgspec.field(default_factory=list)


class Cursor(documents.Cursor[Report], frozen=True):
    def at(self, *steps: Step) -> Self:
        """The cursor at a nested value; its value is None if the path does not exist."""
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

    def unknown(self, name: str, allowed: Sequence[str]) -> None:
        """Report a field that does not exist (STY-003)."""
        severity = Severity.WARNING if self.report.settings.is_lenient else Severity.ERROR
        hint = f"Allowed fields: {', '.join(allowed)}." if allowed else ""
        self.problem_of_key(
            INVALID, f"unknown field {name!r}{guess(name, allowed)}", name, hint=hint, severity=severity
        )

    def warn_unread(self, allowed: Sequence[str]) -> None:
        """Warn about members of a step's free-form `with` that its kind does not read (STY-003)."""
        for name, member in self.members():
            if name not in allowed:
                hint = f"Allowed here: {', '.join(allowed)}."
                member.warn(DOUBTFUL, f"has no effect here{guess(name, allowed)}", hint=hint)

    def ignore(self) -> None:
        """Record a field that only Kubernetes uses: it is checked and kept, but has no effect (STY-004)."""
        self.report.ignored.append(self.path)

    def is_object(self) -> bool:
        if isinstance(self.value, dict):
            return True
        self.problem(INVALID, f"{self.spelled} must be a JSON object")
        return False


def listed(words: Iterable[str]) -> str:
    """`a, b or c`."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last
