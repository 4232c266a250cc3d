"""Playbook's cursor over a document: texts, numbers, members that are allowed or have moved."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from perdure.documents import cursor as documents
from perdure.documents.paths import Path
from perdure.kernel.documents.problems import Severity, guess

Rule = Callable[["Cursor"], object]


class Report(documents.Report):
    is_io: bool = False  # the document is written in profile "io" (PBK-158)
    features: frozenset[str] = frozenset()  # those that the document requires (PBK-008)
    moved: tuple[Mapping[Path, Path], ...] = ()  # where the author wrote what has another place in the canonical form

    def is_moved(self, path: Path) -> bool:
        return any(path in moves for moves in self.moved)


class Cursor(documents.Cursor[Report], frozen=True):
    def is_text(self, code: str) -> bool:
        if self.has("a text", code) and not self.value.strip():
            self.problem(code, f"{self.name} must not be empty")
            return False
        return isinstance(self.value, str)

    def is_one_of(self, allowed: Sequence[str], code: str) -> bool:
        if isinstance(self.value, str) and self.value in allowed:
            return True
        near = guess(self.value, allowed) if isinstance(self.value, str) else ""
        self.problem(code, f"{self.name} must be one of {', '.join(allowed)}, not {self.value!r}{near}")
        return False

    def is_at_least(self, least: int, code: str) -> bool:
        if self.has("a whole number", code) and self.value < least:
            self.problem(code, f"{self.name} must be {least} or more, not {self.value}")
            return False
        return isinstance(self.value, int)

    def check_members(self, rules: Mapping[str, Rule]) -> None:
        """Apply each rule to the member of its name, if there is one."""
        for name, rule in rules.items():
            if name in self.value:
                rule(self.at(name))

    def warn_unread(self, allowed: Iterable[str]) -> None:
        """Settings are extensible (PBK-009): one that nobody reads here is kept, and probably a typing error."""
        names = tuple(allowed)
        for name in self.value if isinstance(self.value, dict) else ():
            if name not in names and not str(name).startswith("x-"):
                hint = f"Settings that have an effect here: {', '.join(names)}."
                message = f"the setting {name!r} has no effect here{guess(str(name), names)}"
                self.problem_of_key("PBK-009", message, name, hint=hint, severity=Severity.WARNING)

    def closed(
        self, allowed: Sequence[str], code: str, subject: str, remedies: Mapping[str, str] | None = None
    ) -> None:
        """No members but these. `remedies`: what to write instead of a member that is not one (any more)."""
        for name in self.value:
            if name in allowed:
                continue
            remedy = (remedies or {}).get(name, "")
            hint = f"Use {remedy}." if remedy else f"Allowed are: {', '.join(allowed)}."
            legacy = "PBK-032" if remedy else code
            near = "" if remedy else guess(str(name), allowed)
            self.problem_of_key(legacy, f"{subject} has no member {name!r}{near}", name, hint=hint)


def anything(cursor: Cursor) -> None:
    """No rule: settings are extensible (PBK-009)."""
