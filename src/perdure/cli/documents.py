"""Documents on their way in: read, recognised, judged; nothing is stored before they are found good."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from perdure.engine.client import Language
from perdure.kernel.errors import InvalidDocument
from perdure.kernel.problems import Problem, Severity

UNKNOWN_LANGUAGE = "DOC-LANGUAGE"
APPLIED_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Judged:
    origin: str
    text: bytes
    problems: list[Problem]

    @property
    def errors(self) -> int:
        return sum(problem.severity is Severity.ERROR for problem in self.problems)

    def lines(self) -> list[str]:
        return [problem.describe(self.origin) for problem in self.problems]

    def plain(self) -> list[dict[str, Any]]:
        """Every problem as JSON data, with the file it stands in."""
        return [{"file": self.origin, **msgspec.to_builtins(problem)} for problem in self.problems]


class ProblemsFound(InvalidDocument):
    """A document that was to be run has problems; they have been listed already."""

    def __init__(self, judged: Judged) -> None:
        count = f"{judged.errors} problem" + ("s" if judged.errors > 1 else "")
        super().__init__(f"{judged.origin} has {count}; nothing was started", problems=judged.plain())


def read(name: str) -> tuple[str, bytes]:
    """Where a document comes from, and its text; `-` is standard input."""
    if name == "-":
        return "<stdin>", sys.stdin.buffer.read()
    return name, Path(name).read_bytes()


def judge(name: str, languages: Mapping[str, Language]) -> Judged:
    origin, text = read(name)
    for language in languages.values():
        if language.recognizes(text):
            return Judged(origin, text, language.parse(text)[1])
    known = ", ".join(sorted(languages))
    problem = Problem(UNKNOWN_LANGUAGE, f"the document is in no language known here ({known})", line=1, column=1)
    return Judged(origin, text, [problem])


def read_applied(places: Iterable[str]) -> list[dict[str, str]]:
    """The files named with --apply, folders in order of name: what a language may find beside the document."""
    found = []
    for place in map(Path, places):
        folder = sorted(one for one in place.rglob("*") if one.suffix in APPLIED_SUFFIXES) if place.is_dir() else None
        for path in [place] if folder is None else folder:
            found.append({"file": str(path), "text": path.read_text(encoding="utf-8")})
    return found
