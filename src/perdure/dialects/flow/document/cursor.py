"""Flow's cursor over a document: expressions, closed objects, and the Flow around a value."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from perdure.dialects.flow.plan.provider_catalog import ProviderCatalog
from perdure.documents import cursor as documents
from perdure.documents.cursor import DocumentFinding
from perdure.documents.paths import Path
from perdure.expressions.mwl import find_expression
from perdure.kernel.documents.problems import Severity, guess

Rule = Callable[["Cursor"], None]


class Report(documents.Report):
    """Findings, and which Flow calls which."""

    catalog: ProviderCatalog
    edges: dict[Path, list[tuple[Path, Path]]] = msgspec.field(default_factory=dict)  # caller → (callee, where)


class EnclosingFlow(msgspec.Struct, frozen=True):
    """The Flow that a value is in: its place, its content, and the Flow around that one."""

    path: Path
    raw: dict[str, Any]
    outer: "EnclosingFlow | None" = None


_OF_THE_STEP = "Write it beside 'call', as a member of the Step: \"middleware\": [{…}]."
_ELSEWHERE = {
    ("a call", "middleware"): _OF_THE_STEP,
    ("a call", "middlewares"): _OF_THE_STEP,
    ("a call", "next"): "Write it beside 'call', as a member of the Step.",
    ("a call", "catch"): "Write it beside 'call', as a member of the Step.",
    ("a middleware entry", "with"): 'Arguments belong to a phase: "onEntry": {"with": {…}}.',
}
"""Members that authors write in the wrong place, and where they belong."""


class Cursor(documents.Cursor[Report], frozen=True):
    enclosing: EnclosingFlow | None = None
    level: str = "step"

    def guess(self, name: str, candidates: Sequence[str]) -> str:
        """`; did you mean 'x'?` for the first problems; guessing is slow, and nobody fixes more at a time."""
        return guess(name, candidates[:2_000]) if len(self.report.findings) < 50 else ""

    @property
    def is_expression(self) -> bool:
        return isinstance(self.value, str) and find_expression(self.value) is not None

    def has(self, kind: str, code: str = "MWL-022", hint: str = "") -> bool:
        """Whether the value is of the kind; an expression is not allowed here (MWL-042)."""
        if self.is_expression:
            name = str(self.path[-1]) if self.path else "the document"
            self.problem("MWL-042", f"{name!r} is structural: an expression is not allowed here")
            return False
        return self.is_literal(kind, code, hint)

    def is_literal(self, kind: str, code: str = "MWL-022", hint: str = "") -> bool:
        """Whether the value is of the kind, even if it is a text that looks like an expression."""
        return super().has(kind, code, hint)

    def closed(
        self,
        members: Mapping[str, Rule],
        required: Sequence[str] = (),
        code: str = "MWL-022",
        subject: str = "this object",
        foreign: Mapping[str, str] | None = None,
    ) -> bool:
        """Whether it is an object; reports members that are missing or not allowed. `foreign`: their codes."""
        if not self.has("an object", code):
            return False
        for name in required:
            if name not in self.value:
                self.problem(code, f"{subject} is missing {name!r}")
        for name in self.value:
            if name in members:
                members[name](self.at(name))
            else:
                allowed = tuple(members)
                message = f"{subject} has no member {name!r}{self.guess(name, allowed)}"
                hint = _ELSEWHERE.get((subject, name)) or f"Allowed are: {', '.join(allowed)}."
                self.problem((foreign or {}).get(name, "MWL-022"), message, name, hint=hint)
        return True

    def exactly_one(self, *names: str, code: str) -> bool:
        present = [name for name in names if name in self.value]
        if len(present) == 1:
            return True
        listed = " and ".join(repr(name) for name in names)
        count = "both" if present else "neither"
        self.problem(code, f"exactly one of {listed} is required, not {count}")
        return False


def comment(cursor: Cursor) -> None:
    """Text for people, wherever the language allows it (MWL-013); never evaluated."""
    cursor.is_literal("a string")


def warning(code: str, message: str, site: str, hint: str = "") -> DocumentFinding:
    """A warning about a compiled part of the document, located by the part's site."""
    steps = (step.replace("~1", "/").replace("~0", "~") for step in site.split("/")[1:])
    return DocumentFinding(code, message, tuple(steps), hint, Severity.WARNING)
