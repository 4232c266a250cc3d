"""The documents of an editor's workspace: what is open, as it is there, and the other files of its folders."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from perdure.cli.document_files import APPLIED_SUFFIXES
from perdure.editor.document_tree import LARGEST, DocumentTree
from perdure.editor.names import DocumentNames
from perdure.editor.schema_lookup import LanguageSchema
from perdure.engine.resources.document_validation import DocumentValidator
from perdure.kernel.documents.validation import AppliedDocument
from perdure.services import SCENARIO_SUFFIXES

MOST_FILES = 2_000  # of a workspace
MOST_ENTRIES = 50_000  # of its folders that are looked at
MOST_TEXT = 4_000_000  # characters of files that are kept
_PASSED_OVER = frozenset({"node_modules", "__pycache__", "venv", "dist", "build"})


def path_of(address: str) -> Path | None:
    """The file of a `file:` address."""
    parts = urlsplit(address)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


class WorkspaceTexts:
    """Texts by address, with their languages and names. A text that is open counts instead of its file."""

    def __init__(self, validator: DocumentValidator, schemas: Mapping[str, LanguageSchema]) -> None:
        self._validator = validator
        self._schemas = schemas
        self._folders: list[Path] = []
        self._open: dict[str, str] = {}
        self._files: dict[str, tuple[tuple[int, int], str]] = {}
        self._names: dict[str, tuple[str, DocumentNames]] = {}
        self._languages: dict[str, tuple[str, str]] = {}  # the text in which a language was recognized last

    def set_folders(self, addresses: Iterable[str]) -> None:
        self._folders = [path for path in map(path_of, addresses) if path is not None]
        self._files.clear()

    def open(self, address: str, text: str) -> None:
        self._open[address] = text

    def close(self, address: str) -> None:
        self._open.pop(address, None)
        self._names.pop(address, None)
        self._languages.pop(address, None)

    def text_of(self, address: str) -> str:
        return self._open.get(address, "")

    def is_scenario(self, address: str) -> bool:
        """Whether it is a file of `perdure test`, which is no document itself."""
        return address.endswith(SCENARIO_SUFFIXES)

    def language_of(self, address: str, text: str) -> str | None:
        """Its language, or the one that it was in: while one types, a document may be unrecognizable."""
        known = self._languages.get(address)
        if known is not None and known[0] == text:
            return known[1]
        if self.is_scenario(address):
            return None
        language = self._validator.language_of(text.encode(errors="replace"))
        name = language.name if language is not None else known[1] if known is not None else None
        if name is None or name not in self._schemas:
            return None
        self._languages[address] = text, name
        return name

    def names_of(self, address: str, text: str) -> DocumentNames | None:
        known = self._names.get(address)
        if known is not None and known[0] == text:
            return known[1]
        language = self.language_of(address, text)
        if language is None or len(text) > LARGEST:
            return None
        names = DocumentNames.read(DocumentTree(text), self._schemas[language])
        self._names[address] = text, names
        return names

    def workspace_of(self, address: str) -> dict[str, DocumentNames]:
        """The document, and the others of the workspace in its language."""
        text = self.text_of(address)
        names = self.names_of(address, text)
        if names is None:
            return {}
        workspace = {address: names}
        if not names.lookup.language.facts.get("workspace"):
            return workspace
        for other, other_text in self._texts():
            if other != address and self.language_of(other, other_text) == names.lookup.language.name:
                other_names = self.names_of(other, other_text)
                if other_names is not None:
                    workspace[other] = other_names
        return workspace

    def applied_with(self, address: str) -> list[AppliedDocument]:
        """The other documents of its language, which it may refer to."""
        language = self.language_of(address, self.text_of(address))
        return [
            AppliedDocument(str(path_of(other) or other), text)
            for other, text in self._texts()
            if other != address and self.language_of(other, text) == language
        ]

    def _texts(self) -> Iterator[tuple[str, str]]:
        yield from list(self._open.items())
        kept = 0
        open_files = {path_of(address) for address in self._open}
        for address, path in self._listed():
            if path in open_files or (text := self._read(address, path)) is None:
                continue
            kept += len(text)
            if kept > MOST_TEXT:
                return
            yield address, text

    def _listed(self) -> Iterator[tuple[str, Path]]:
        count = entries = 0
        for folder in self._folders:
            for place, folders, files in os.walk(folder):
                folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _PASSED_OVER)
                entries += len(folders) + len(files)
                for name in sorted(files):
                    if not name.endswith(APPLIED_SUFFIXES) or name.endswith(SCENARIO_SUFFIXES):
                        continue
                    count += 1
                    if count > MOST_FILES:
                        return
                    path = Path(place, name)
                    yield path.as_uri(), path
                if entries > MOST_ENTRIES:
                    return

    def _read(self, address: str, path: Path) -> str | None:
        try:
            about = path.stat()
            if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:  # a link may lead to a device or a pipe
                return None
            stamp = about.st_mtime_ns, about.st_size
            known = self._files.get(address)
            if known is None or known[0] != stamp:
                with path.open(encoding="utf-8", errors="replace") as file:  # its size is only said, not believed
                    known = self._files[address] = stamp, file.read(LARGEST)
            return known[1]
        except OSError:
            return None
