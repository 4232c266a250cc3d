"""Problems of documents while they are written: the check of `perdure check`, some time after the last change.

A check does not occupy the event loop, is given up when its text has changed, and lasts only so long.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from perdure.cli.language_server.workspace_texts import WorkspaceTexts
from perdure.editor.document_tree import DocumentTree
from perdure.editor.nodes import TextLines
from perdure.engine.decision_threads import TakesTooLong
from perdure.engine.resources.document_validation import DocumentValidator
from perdure.kernel.documents.problems import Severity
from perdure.views.resources.document_check import CheckedDocument, validate
from perdure.views.resources.soundness_findings import with_findings

DELAY = 0.3  # seconds after the last change
LONGEST = 20.0  # seconds of one check
LARGEST_CHECKED = 1_000_000  # characters

OpenValidator = Callable[[], AbstractAsyncContextManager[DocumentValidator]]


@dataclass(frozen=True, slots=True)
class DocumentRemark:
    """A problem or a finding, with its range in the text."""

    start: int
    end: int
    severity: Severity
    code: str
    message: str


Publish = Callable[[str, int | None, TextLines, list[DocumentRemark]], None]


class DocumentChecks:
    """At most one check of each document is under way."""

    def __init__(self, texts: WorkspaceTexts, open_validator: OpenValidator, publish: Publish) -> None:
        self._texts = texts
        self._open_validator = open_validator
        self._publish = publish
        self._under_way: dict[str, asyncio.Task[None]] = {}

    def begin(self, address: str, version: int | None, *, delay: float = DELAY) -> None:
        """Check a document soon; a check of an earlier text of it is given up."""
        self.give_up(address)
        self._under_way[address] = asyncio.create_task(self._check_later(address, version, delay))

    def give_up(self, address: str) -> None:
        task = self._under_way.pop(address, None)
        if task is not None:
            task.cancel()

    async def _check_later(self, address: str, version: int | None, delay: float) -> None:
        await asyncio.sleep(delay)
        text = self._texts.text_of(address)
        if len(text) > LARGEST_CHECKED:
            remark = _about_all(
                text, f"a text of more than {LARGEST_CHECKED:,} characters is not checked while you type"
            )
            self._publish(address, version, TextLines(text), [remark])
            return
        language = await asyncio.to_thread(self._texts.language_of, address, text)
        if language is None:  # a document of something else
            self._publish(address, version, TextLines(text), [])
            return
        tree = await asyncio.to_thread(DocumentTree, text)
        try:
            async with asyncio.timeout(LONGEST):
                remarks = remarks_of(await self._checked(address, text, language), tree)
        except (TimeoutError, TakesTooLong):
            remarks = [_about_all(text, "the check took too long and was given up")]
        self._publish(address, version, tree, remarks)

    async def _checked(self, address: str, text: str, language: str) -> CheckedDocument:
        applied = await asyncio.to_thread(self._texts.applied_with, address)
        async with self._open_validator() as validator:
            document = text.encode(errors="replace")
            checked = await validate(address, document, validator, applied, language=validator.languages[language])
            return await with_findings(checked)


def _about_all(text: str, message: str) -> DocumentRemark:
    end = text.find("\n")
    hint = "`perdure check` checks the file."
    return DocumentRemark(0, len(text) if end < 0 else end, Severity.WARNING, "LSP-LIMIT", f"{message}\n{hint}")


def remarks_of(document: CheckedDocument, tree: DocumentTree) -> list[DocumentRemark]:
    """Everything that the check has found, with ranges."""
    ends = tree.scalar_ranges()
    remarks = []
    for problem in document.problems:
        start = tree.offset_of_place(problem.line or 1, problem.column or 1)
        end = ends.get(start) or tree.line_end(start)
        message = f"{problem.message}\n{problem.hint}" if problem.hint else problem.message
        remarks.append(DocumentRemark(start, max(end, start), problem.severity, problem.code, message))
    for finding in document.findings:
        line = tree.offset_of_place(finding.line or 1, 1)
        end = tree.line_end(line)
        start = end - len(tree.text[line:end].lstrip())
        severity = Severity.ERROR if finding.is_certain else Severity.WARNING
        remarks.append(DocumentRemark(start, end, severity, str(finding.defect.kind), "\n".join(finding.explain())))
    return remarks
