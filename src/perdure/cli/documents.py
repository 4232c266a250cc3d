"""Documents on their way in: read, recognised, judged; nothing is stored before they are found good."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from perdure.cli.errors import BadUsage
from perdure.engine.catalog_entries import Finding
from perdure.engine.client import Client
from perdure.engine.document_validation import DocumentValidator, in_no_language, nothing_known
from perdure.kernel.dialect import Dialect
from perdure.kernel.errors import InvalidDocument
from perdure.kernel.lookups import Lookup, LookupAnswers
from perdure.kernel.problems import Problem, Severity
from perdure.kernel.validation import AppliedDocument

UNKNOWN_LANGUAGE = "DOC-LANGUAGE"
APPLIED_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class CheckedDocument:
    origin: str
    text: bytes
    problems: list[Problem]
    program: Any | None = None
    pinned: bytes = b""
    language: Dialect | None = None

    @property
    def errors(self) -> int:
        return sum(problem.severity is Severity.ERROR for problem in self.problems)

    @property
    def is_foreign(self) -> bool:
        """It can be read, and is a document of something else."""
        return any(problem.code == UNKNOWN_LANGUAGE for problem in self.problems)

    def lines(self) -> list[str]:
        return [problem.describe(self.origin) for problem in self.problems]

    def plain(self) -> list[dict[str, Any]]:
        """Every problem as JSON data, with the file it stands in."""
        return [{"file": self.origin, **msgspec.to_builtins(problem)} for problem in self.problems]


class ProblemsFound(InvalidDocument):
    """A document that was to be run has problems; they have been listed already."""

    def __init__(self, judged: CheckedDocument) -> None:
        count = f"{judged.errors} problem" + ("s" if judged.errors > 1 else "")
        super().__init__(f"{judged.origin} has {count}; nothing was started", problems=judged.plain())


class NotApplied(InvalidDocument):
    """Resources that were to be applied have problems; they have been listed already."""

    hint = "Correct them; `perdure check FILE…` lists the problems of files together and stores nothing."

    def __init__(self, findings: Sequence[Finding]) -> None:
        errors = sum(one.problem.severity is Severity.ERROR for one in findings)
        count = f"{errors} problem" + ("s" if errors > 1 else "")
        super().__init__(f"{count}; nothing was applied", problems=[one.plain() for one in findings])


class NothingToRun(InvalidDocument):
    """The file is in order, but what it holds is referred to by others and is not a workflow itself."""

    hint = "Name a file with a workflow in it; what it refers to is given with --apply."


def validator_for(languages: Mapping[str, Dialect], store: Callable[[], Client | None]) -> DocumentValidator:
    """Judges among what the store's catalog holds; the store is opened only if a document asks for something."""

    async def fetch(asked: Sequence[Lookup]) -> LookupAnswers:
        client = store()
        return await (nothing_known(asked) if client is None else client.known(asked))

    return DocumentValidator(languages, fetch)


def read(name: str) -> tuple[str, bytes]:
    """Where a document comes from, and its text; `-` is standard input."""
    if name == "-":
        return "<stdin>", sys.stdin.buffer.read()
    if Path(name).is_dir():
        raise BadUsage(f"{name} is a folder; name one document of it")
    return name, Path(name).read_bytes()


def files_of(name: str) -> list[str]:
    """The file itself, or what a folder holds that may be a document, in order of name."""
    place = Path(name)
    if name == "-" or not place.is_dir():
        return [name]
    return [str(one) for one in sorted(place.rglob("*")) if one.suffix in APPLIED_SUFFIXES and one.is_file()]


async def validate(
    origin: str, text: bytes, judging: DocumentValidator, applied: Sequence[AppliedDocument] = (), *, chosen: str = ""
) -> CheckedDocument:
    language = judging.language_of(text)
    if language is None:
        return CheckedDocument(origin, text, _in_no_language(text, judging))
    judged = await judging.validate(language, text, applied, chosen=chosen)
    return CheckedDocument(origin, text, judged.problems, judged.program, judged.pinned, language)


def _in_no_language(text: bytes, judging: DocumentValidator) -> list[Problem]:
    """Why nobody knows the document: it cannot be read at all, or is empty, or is something else."""
    from perdure.documents import UnreadableText, read_documents

    try:
        found = read_documents(text)
    except UnreadableText as unreadable:
        return list(unreadable.problems)
    what = in_no_language(judging.languages) if found else "the document is empty"
    return [Problem(UNKNOWN_LANGUAGE, what, line=1, column=1)]


def read_applied(places: Iterable[str]) -> list[AppliedDocument]:
    """The files named with --apply, folders in order of name: what a language may find beside the document."""
    found = []
    for name in places:
        if name == "-":
            found.append(AppliedDocument("<stdin>", sys.stdin.buffer.read().decode(errors="replace")))
            continue
        for file in files_of(name):
            found.append(AppliedDocument(file, Path(file).read_text(encoding="utf-8", errors="replace")))
    return found
