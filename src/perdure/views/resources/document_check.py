"""Documents that are checked: recognised, validated, every problem listed; nothing is stored."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.engine.client import Client
from perdure.engine.decision_threads import WORK_OF_TEXT, done_aside
from perdure.engine.resources.catalog_changes import Finding
from perdure.engine.resources.document_validation import LANGUAGE_HINT, DocumentValidator, in_no_language, nothing_known
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.lookups import Lookup, LookupAnswers
from perdure.kernel.documents.problems import Problem, Severity
from perdure.kernel.documents.validation import AppliedDocument, Validated
from perdure.kernel.errors import InvalidDocument
from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.views.errors import BadRequest

if TYPE_CHECKING:
    from perdure.views.resources.soundness_findings import SoundnessFinding

UNKNOWN_LANGUAGE = "DOC-LANGUAGE"


@dataclass(frozen=True, slots=True)
class CheckedDocument:
    origin: str
    text: bytes
    problems: list[Problem]
    program: Any | None = None
    pinned: bytes = b""
    language: Dialect | None = None
    validated: Validated | None = None
    findings: "tuple[SoundnessFinding, ...]" = ()

    @property
    def errors(self) -> int:
        return sum(problem.severity is Severity.ERROR for problem in self.problems)

    @property
    def certain(self) -> int:
        """How many findings happen in every run, or make something useless in every run."""
        return sum(finding.is_certain for finding in self.findings)

    @property
    def is_foreign(self) -> bool:
        """It can be read, and is a document of something else."""
        return any(problem.code == UNKNOWN_LANGUAGE for problem in self.problems)

    def lines(self) -> list[str]:
        problems = [problem.describe(self.origin) for problem in self.problems]
        return problems + [finding.describe(self.origin) for finding in self.findings]

    def plain(self) -> list[dict[str, Any]]:
        """Every problem as JSON data, with the file it stands in."""
        return [{"file": self.origin, **msgspec.to_builtins(problem)} for problem in self.problems]

    def plain_findings(self) -> list[dict[str, Any]]:
        """Every finding as JSON data, with the file it is about."""
        return [{"file": self.origin, **finding.plain()} for finding in self.findings]


class ProblemsFound(InvalidDocument):
    """A document that was to be run has problems; they have been listed already."""

    def __init__(self, document: CheckedDocument) -> None:
        count = f"{document.errors} problem" + ("s" if document.errors > 1 else "")
        super().__init__(f"{document.origin} has {count}; nothing was started", problems=document.plain())


class NotApplied(InvalidDocument):
    """Resources that were to be applied have problems; they have been listed already."""

    hint = "Correct the documents; `perdure check FILE…` lists the problems of files together and stores nothing."

    def __init__(self, findings: Sequence[Finding]) -> None:
        errors = sum(finding.problem.severity is Severity.ERROR for finding in findings)
        count = f"{errors} problem" + ("s" if errors > 1 else "")
        super().__init__(f"{count}; nothing was applied", problems=[finding.plain() for finding in findings])


class NothingToRun(InvalidDocument):
    """The file is in order, but what it holds is referred to by others and is not a workflow itself."""

    hint = "Name a file with a workflow in it; what it refers to is given with --apply."


def check_target(document: CheckedDocument, step: str) -> None:
    """Whether a run of the document can begin with this step."""
    if document.language is None or not document.language.has_entries:
        raise BadRequest("only a Playbook begins with a step of your choice")
    if problem := document.language.check_entry(document.program, step):
        raise InvalidDocument(problem.describe(document.origin), problems=replace(document, problems=[problem]).plain())


def checked_elsewhere(origin: str, text: bytes, problems: Sequence[Mapping[str, Any]]) -> CheckedDocument:
    """A document that a server has checked, with the problems that it has found."""
    fields = frozenset(Problem.__struct_fields__)
    items = [{name: value for name, value in problem.items() if name in fields} for problem in problems]
    return CheckedDocument(origin, text, msgspec.convert(items, list[Problem]))


def validator_for(languages: Mapping[str, Dialect], store: Callable[[], Client | None]) -> DocumentValidator:
    """Validates against the store's catalog; the store is opened only if a document asks for something."""

    async def fetch(lookups: Sequence[Lookup]) -> LookupAnswers:
        client = store()
        return await (nothing_known(lookups) if client is None else client.known(lookups))

    return DocumentValidator(languages, fetch)


async def validate(
    origin: str,
    text: bytes,
    validator: DocumentValidator,
    applied: Sequence[AppliedDocument] = (),
    *,
    chosen: str = "",
    namespace: str = DEFAULT_NAMESPACE,
    language: Dialect | None = None,
) -> CheckedDocument:
    """`namespace` is where documents are that do not name one; `language` that of the document, where it is known."""
    language = language or await validator.find_language(text)
    if language is None:
        problems = await done_aside(WORK_OF_TEXT * len(text), lambda: _in_no_language(text, validator))
        return CheckedDocument(origin, text, problems)
    validated = await validator.validate(language, text, applied, chosen=chosen, namespace=namespace)
    return CheckedDocument(origin, text, validated.problems, validated.program, validated.pinned, language, validated)


def _in_no_language(text: bytes, validator: DocumentValidator) -> list[Problem]:
    """Why nobody knows the document: it cannot be read at all, or is empty, or is something else."""
    from perdure.documents import UnreadableText, read_documents

    try:
        documents = read_documents(text)
    except UnreadableText as unreadable:
        return list(unreadable.problems)
    message = in_no_language(validator.languages) if documents else "the document is empty"
    return [Problem(UNKNOWN_LANGUAGE, message, line=1, column=1, hint=LANGUAGE_HINT)]


def schema_of_language(languages: Mapping[str, Dialect], name: str) -> dict[str, Any]:
    """What documents of a language may contain, as JSON Schema 2020-12."""
    schemas = {known: language.document_schema() for known, language in languages.items() if not language.is_for_tests}
    if (schema := schemas.get(name)) is None:
        known = ", ".join(sorted(known for known, schema in schemas.items() if schema is not None))
        raise BadRequest(f"there is no schema of a language {name[:40]!r}", hint=f"There are: {known}.")
    from perdure.documents.schema_parts import without_facts

    return dict(without_facts(schema))
