"""What goes wrong in runs of a valid document, as people and machines read it."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any

from perdure.analysis.soundness import find_defects
from perdure.engine.decision_threads import threads
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.problems import Severity
from perdure.kernel.graphs.net import Certainty, Defect, DefectKind
from perdure.kernel.turn_budget import TurnBudget, TurnTooExpensive, current
from perdure.views.resources.document_check import CheckedDocument, checked_elsewhere

MOST_FINDINGS = 200  # of one document
LONGEST = 5.0  # seconds
_TOO_LARGE = Defect(
    DefectKind.UNDECIDED,
    Certainty.MAY,
    None,
    (),
    f"it could not be determined within {LONGEST:g} seconds what may happen in runs",
    "Nothing is known to be wrong. Parts of the document can be checked on their own.",
)


@dataclass(frozen=True, slots=True)
class SoundnessFinding:
    """What is wrong with a valid document, and where."""

    defect: Defect
    path: str
    line: int | None

    @property
    def is_certain(self) -> bool:
        return self.defect.certainty is Certainty.WILL

    def describe(self, origin: str) -> str:
        defect = self.defect
        place = origin if self.line is None else f"{origin}:{self.line}"
        severity = Severity.ERROR if self.is_certain else Severity.WARNING
        path = f" ({self.path})" if self.path else ""
        return "\n    ".join([f"{place}: {severity}: {defect.message}{path} [{defect.kind}]", *self.explain()[1:]])

    def explain(self) -> list[str]:
        """What is wrong, an example of a run if there is one, and what to do: a line each."""
        defect = self.defect
        trace = "; ".join(f"{step} {choice}" for step, choice in defect.trace)
        return [defect.message, *([f"for example: {trace}"] if trace else []), *([defect.hint] if defect.hint else [])]

    def plain(self) -> dict[str, Any]:
        defect = self.defect
        return {
            "kind": defect.kind.value,
            "certainty": defect.certainty.value,
            "step": defect.step,
            "path": self.path,
            "line": self.line,
            "message": defect.message,
            "hint": defect.hint,
            "trace": [{"step": step, "choice": choice} for step, choice in defect.trace],
        }


def found_elsewhere(origin: str, text: bytes, checked: Mapping[str, Any]) -> CheckedDocument:
    """A document that a server has checked, with all that it has found."""
    problems = sorted(
        [*checked["problems"], *checked["warnings"]], key=lambda problem: (problem["line"], problem["column"])
    )
    findings = [
        SoundnessFinding(
            Defect(
                DefectKind(finding["kind"]),
                Certainty(finding["certainty"]),
                finding["step"],
                (),
                finding["message"],
                finding["hint"],
                tuple((part["step"], part["choice"]) for part in finding["trace"]),
            ),
            finding["path"],
            finding["line"],
        )
        for finding in checked["findings"]
    ]
    return replace(checked_elsewhere(origin, text, problems), findings=tuple(findings))


async def with_findings(document: CheckedDocument) -> CheckedDocument:
    """The document with what its net shows, if it has no errors: deadlocks, endless loops, steps that never run."""
    language, program = document.language, document.program
    if language is None or program is None or document.errors:
        return document
    return replace(document, findings=await threads.analyse(partial(_find, language, program, document.text)))


def _find(language: Dialect, program: Any, text: bytes) -> tuple[SoundnessFinding, ...]:
    defects = _find_defects(language, program)
    listed = sorted(defects, key=lambda defect: defect.certainty is not Certainty.WILL)[:MOST_FINDINGS]
    placed = [defect for defect in listed if defect.place]
    places = language.find_places(text, program, [defect.place for defect in placed]) if placed else ()
    findings = [SoundnessFinding(defect, *place) for defect, place in zip(placed, places, strict=True)]
    findings.sort(key=lambda finding: finding.line or 0)
    findings[:0] = [SoundnessFinding(defect, "", None) for defect in listed if not defect.place]
    if more := len(defects) - len(listed):
        message = f"there are {more} more findings, which are not listed"
        last = Defect(DefectKind.UNDECIDED, Certainty.MAY, None, (), message, "Correct these first.")
        findings.append(SoundnessFinding(last, "", None))
    return tuple(findings)


def _find_defects(language: Dialect, program: Any) -> list[Defect]:
    """All findings; one that says so, if they take too long to find."""
    until = monotonic() + LONGEST
    around = current.get()

    def rest() -> None:
        if around is not None and around.rest is not None:
            around.rest()
        if monotonic() > until:
            raise TurnTooExpensive("the analysis took too long")

    try:
        with TurnBudget(sys.maxsize, rest):  # what is counted brings rests; time is what ends it
            net = language.net(program)
            return [] if net is None else find_defects(net, monotonic)
    except (TurnTooExpensive, RecursionError):
        return [_TOO_LARGE]
