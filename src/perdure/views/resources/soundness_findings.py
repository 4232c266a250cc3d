"""What goes wrong in runs of a valid document, as people and machines read it."""

from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any

from perdure.analysis.soundness import judge
from perdure.engine.decision_threads import done_aside
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.problems import Severity
from perdure.kernel.graphs.net import Certainty, Defect
from perdure.views.resources.document_check import CheckedDocument

WORK_OF_NET = 64  # per byte of a document, beside that of folding a byte of records


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
        lines = [f"{place}: {severity}: {defect.message}{path} [{defect.kind}]"]
        if defect.trace:
            lines.append(f"for example: {'; '.join(f'{step} {choice}' for step, choice in defect.trace)}")
        return "\n    ".join([*lines, *([defect.hint] if defect.hint else [])])

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


async def with_findings(document: CheckedDocument) -> CheckedDocument:
    """The document with what its net shows, if it has no errors: deadlocks, endless loops, steps that never run."""
    language, program = document.language, document.program
    if language is None or program is None or document.errors:
        return document
    work = partial(_find, language, program, document.text)
    return replace(document, findings=await done_aside(WORK_OF_NET * len(document.text), work))


def _find(language: Dialect, program: Any, text: bytes) -> tuple[SoundnessFinding, ...]:
    net = language.net(program)
    if net is None:
        return ()
    findings = []
    for defect in judge(net, monotonic):
        path, line = language.find_place(text, program, defect.place) if defect.place else ("", None)
        findings.append(SoundnessFinding(defect, path, line))
    return tuple(sorted(findings, key=lambda finding: finding.line or 0))
