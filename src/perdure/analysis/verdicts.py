"""What testing documents has found, for people and machines."""

from dataclasses import dataclass, field
from typing import Any

from perdure.analysis.coverage import Coverage


@dataclass(slots=True)
class ScenarioVerdict:
    """One scenario: it has passed if nothing differs."""

    file: str
    document: str
    name: str
    line: int = 0
    differences: list[str] = field(default_factory=list)
    status: str = ""
    commits: int = 0
    crashes: int = 0
    seconds: float = 0.0  # of real time
    virtual_seconds: float = 0.0

    @property
    def has_passed(self) -> bool:
        return not self.differences

    def facts(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "document": self.document,
            "name": self.name,
            "line": self.line,
            "passed": self.has_passed,
            "differences": self.differences,
            "status": self.status,
            "commits": self.commits,
            "crashes": self.crashes,
            "seconds": round(self.seconds, 3),
            "virtual_seconds": self.virtual_seconds,
        }


@dataclass(frozen=True, slots=True)
class DocumentCoverage:
    document: str
    coverage: Coverage

    def facts(self) -> dict[str, Any]:
        return {"document": self.document, **self.coverage.facts()}
