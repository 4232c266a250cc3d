"""From text to a program, or to every problem the document has, each with its place."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from perdure.dialects.playbook.document.advice import advise
from perdure.dialects.playbook.document.cursor import Cursor, Report
from perdure.dialects.playbook.document.io import CanonicalDocument, canonical_form
from perdure.dialects.playbook.document.keychain import entry_names
from perdure.dialects.playbook.document.root import check_document
from perdure.dialects.playbook.document.tasks import KnownNames
from perdure.dialects.playbook.document.tool_forms import workbook_entries
from perdure.dialects.playbook.plan.compiler import compile_program
from perdure.dialects.playbook.plan.program import Program
from perdure.documents import Document, UnreadableText, read_document
from perdure.documents.cursor import DocumentFinding
from perdure.documents.paths import Path, spell
from perdure.expressions.jinja.program import limited_compiling
from perdure.kernel.documents.problems import Problem
from perdure.kernel.documents.validation import DeclaredResource

# Step names that other YAML readers take for a boolean: `on`, `yes` and the like, without quotes (PBK-005).

SWITCHES = frozenset(form for word in ("yes", "no", "on", "off") for form in (word, word.title(), word.upper()))


def check_step_names(cursor: Cursor, document: Document) -> None:
    """This reader keeps them as text (YAML 1.2), but the same document must mean the same everywhere."""
    workflow = cursor.value.get("workflow") if isinstance(cursor.value, dict) else None
    for index, step in enumerate(workflow if isinstance(workflow, list) else ()):
        name = step.get("step") if isinstance(step, dict) else None
        if isinstance(name, str) and name in SWITCHES and _is_plain(document, ("workflow", index, "step"), name):
            message = f"{name} without quotes is a boolean to many readers of YAML, not a name"
            cursor.at("workflow").at(index).at("step").problem("PBK-005", message, hint=f'Put it in quotes: "{name}".')


def _is_plain(document: Document, path: tuple[str | int, ...], name: str) -> bool:
    line, column = document.place_of(path)
    return document.text.split("\n")[line - 1][column - 1 :].startswith(name)


# A playbook as a resource: its key in the catalog.


def declares(text: bytes) -> list[DeclaredResource]:
    """Its key is its path (PBK-210)."""
    playbook = _playbook(text)
    path = None if playbook is None else playbook["metadata"].get("path") or playbook["metadata"].get("name")
    return [DeclaredResource("Playbook", "", str(path), playbook, text)] if playbook is not None and path else []


def _playbook(text: bytes) -> dict[str, Any] | None:
    try:
        data = read_document(text).data
    except UnreadableText:
        return None
    is_playbook = isinstance(data, dict) and data.get("kind") == "Playbook" and isinstance(data.get("metadata"), dict)
    return data if is_playbook else None


PLACED = 200  # problems that are reported; more at once are of no use


PRIVATE = "playbook."


class ToolCatalog:
    """What a document may rely on: the providers that can be tool kinds. Providers of the language itself cannot."""

    def __init__(
        self,
        provides: Callable[[str], bool],
        kinds: Callable[[], Sequence[str]],
        lacks: Callable[[str], str | None] = lambda kind: None,
        refusal: Callable[[str], str | None] = lambda name: None,
    ) -> None:
        self.lacks = lacks
        self.refusal = refusal
        self.provides = lambda name: not name.startswith(PRIVATE) and provides(name)
        self.kinds = lambda: tuple(name for name in kinds() if not name.startswith(PRIVATE))

    def known_names(self, data: Any) -> KnownNames:
        workbook = workbook_entries(data.get("workbook")) if isinstance(data, dict) else {}
        bodies = {name: body for name, (_, body) in workbook.items()}
        keychain = entry_names(data.get("keychain") if isinstance(data, dict) else None)
        return KnownNames(self.provides, self.kinds, bodies, self.lacks, keychain, self.refusal)


def read(text: bytes, around: ToolCatalog) -> tuple[Program | None, list[Problem]]:
    try:
        document = read_document(text)
    except UnreadableText as unreadable:
        return None, list(unreadable.problems)
    report = Report()
    canonical = canonical_form(document.data, report)
    report.is_io, report.moved = canonical.is_io, canonical.moved
    report.features = _required_features(canonical.data)
    cursor = Cursor(report, canonical.data)
    with limited_compiling():
        check_document(cursor, around.known_names(canonical.data))
    check_step_names(cursor, document)
    if report.has_errors:
        return None, _placed(document, canonical, report.findings)
    program = compile_program(
        canonical.data, around.known_names(canonical.data).workbook, around.provides, is_io=canonical.is_io
    )
    advise(cursor.at("workflow"), program)
    return program, _placed(document, canonical, report.findings)


def _required_features(data: Any) -> frozenset[str]:
    place = data
    for name in ("executor", "requires", "features"):
        place = place.get(name) if isinstance(place, dict) else None
    return frozenset(name for name in place if isinstance(name, str)) if isinstance(place, list) else frozenset()


def load(text: bytes, around: ToolCatalog) -> Program:
    """A pinned document: it was validated when the run was started and is not validated again."""
    canonical = canonical_form(read_document(text).data, Report())
    return compile_program(
        canonical.data, around.known_names(canonical.data).workbook, around.provides, is_io=canonical.is_io
    )


def _placed(document: Document, canonical: CanonicalDocument, findings: Sequence[DocumentFinding]) -> list[Problem]:
    problems = []
    for finding in findings[:PLACED]:
        message = f"{_step(document.data, finding.path)}{finding.message}"
        problems.append(
            replace(finding, message=message, path=canonical.written_path(finding.path)).to_problem(document)
        )
    return sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0))


def _step(data: Any, path: Path) -> str:
    """`step 'a': `, for a problem inside a step that has a name."""
    match path:
        case ("workflow", int(index), *_):
            name = data["workflow"][index].get("step") if isinstance(data["workflow"][index], dict) else None
            return f"step {name!r}: " if isinstance(name, str) and name else ""
    return ""


def find_places(text: bytes, program: Program, places: Sequence[Path]) -> Iterator[tuple[str, int | None]]:
    """The path of each part as people write it, and its line."""
    document = read_document(text)
    return ((spell(place), document.place_of(place)[0]) for place in places)
