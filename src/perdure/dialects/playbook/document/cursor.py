"""A look at one value of a document: what it should be, and where it stands if it is not. No problem stops it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from perdure.kernel.problems import Severity, guess

Path = tuple[str | int, ...]
Rule = Callable[["Cursor"], object]

KINDS: dict[str, tuple[type, ...]] = {
    "a map": (dict,),
    "a list": (list,),
    "a text": (str,),
    "true or false": (bool,),
    "a number": (int, float),
    "a whole number": (int,),
}


class Found(msgspec.Struct, frozen=True):
    code: str
    message: str
    path: Path
    hint: str = ""
    severity: Severity = Severity.ERROR
    is_key: bool = False


class Report(msgspec.Struct):
    found: list[Found] = msgspec.field(default_factory=list)
    is_io: bool = False  # the document is written in profile "io" (PBK-158)

    @property
    def has_errors(self) -> bool:
        return any(one.severity is Severity.ERROR for one in self.found)


class Cursor(msgspec.Struct, frozen=True):
    findings: Report
    value: Any
    path: Path = ()

    def at(self, step: str | int) -> "Cursor":
        return Cursor(self.findings, self.value[step], (*self.path, step))

    def problem(self, code: str, message: str, *, hint: str = "") -> None:
        self.findings.found.append(Found(code, message, self.path, hint))

    def problem_of_key(self, code: str, message: str, key: str, *, hint: str = "") -> None:
        self.findings.found.append(Found(code, message, (*self.path, key), hint, is_key=True))

    def warn(self, code: str, message: str, *, hint: str = "") -> None:
        self.findings.found.append(Found(code, message, self.path, hint, Severity.WARNING))

    @property
    def name(self) -> str:
        return repr(str(self.path[-1])) if self.path else "the document"

    def has(self, kind: str, code: str, hint: str = "") -> bool:
        """Whether the value is of the kind; reports if not."""
        allowed = KINDS[kind]
        if isinstance(self.value, allowed) and not (isinstance(self.value, bool) and bool not in allowed):
            return True
        self.problem(code, f"{self.name} must be {kind}", hint=hint)
        return False

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

    def members(self, names: Mapping[str, Rule]) -> None:
        """Judge those of these members that are there."""
        for name, rule in names.items():
            if name in self.value:
                rule(self.at(name))

    def closed(self, known: Sequence[str], code: str, what: str, remedies: Mapping[str, str] | None = None) -> None:
        """No members but these. `remedies`: what to write instead of a member that is not one (any more)."""
        for name in self.value:
            if name in known:
                continue
            remedy = (remedies or {}).get(name, "")
            hint = f"Use {remedy}." if remedy else f"Allowed are: {', '.join(known)}."
            legacy = "PBK-032" if remedy else code
            near = "" if remedy else guess(str(name), known)
            self.problem_of_key(legacy, f"{what} has no member {name!r}{near}", name, hint=hint)

    def items(self) -> Iterator["Cursor"]:
        return (self.at(index) for index in range(len(self.value)))


def anything(look: Cursor) -> None:
    """No rule: knobs are extensible (PBK-009)."""
