"""The catalog: what is applied is validated, compared with what is stored, and written in one transaction.

    texts ──declares──▶ entries ──compare──▶ unchanged | created | configured
                                     │ validated with each other and the catalog
                                     ▼
                              written, unless others have written since; else compared again

Where anything is wrong with any of the texts, nothing is written.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.engine.decision_threads import WORK_OF_TEXT, done_aside
from perdure.engine.resources.catalog_changes import (
    Change,
    Entry,
    Finding,
    Outcome,
    Rejected,
    Step,
    compare,
    pending_mark,
    read_entry,
    refusal,
    retry_on_conflict,
    version_conflict,
    with_mark,
    with_status,
)
from perdure.engine.resources.document_validation import LANGUAGE_HINT, DocumentValidator, calls_others, in_no_language
from perdure.engine.resources.lookup_answers import entries, read_document
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.lookups import Callee, CalleeLookup, ResourceKey
from perdure.kernel.documents.problems import Problem, Severity, guess
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.documents.validation import AppliedDocument, Resource
from perdure.kernel.errors import Conflict, PerdureError
from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant
from perdure.stores.protocol import CatalogConflict, EditionRow, ResourceRemoval, ResourceRow, ResourceWrite, Store


class ResourceNotFound(PerdureError):
    """The catalog has no entry of that kind and name."""

    code = "RESOURCE-NOT-FOUND"
    hint = "List the entries with `perdure get KIND --all-namespaces`; add one with `perdure apply -f FILE`."


class UnknownKind(PerdureError):
    """No language knows resources of that kind."""

    code = "KIND-UNKNOWN"
    hint = "`perdure get` lists the kinds."


MOST_REFERENCES, LONGEST_REFERENCE = 1_000, 200  # whose meaning is kept; characters of one

Meant = tuple[int | None, list[tuple[ResourceKind, ResourceKey]]]


class Runnable(msgspec.Struct, frozen=True):
    """A document that was found in the catalog."""

    kind: ResourceKind
    key: ResourceKey
    generation: int
    text: bytes
    from_api: bool = False  # the entry was written through the API of a server

    @property
    def origin(self) -> str:
        return f"{self.kind.title(self.key.name)}@{self.generation}"


class Catalog:
    def __init__(
        self,
        store: Store,
        languages: Mapping[str, Dialect],
        validator: DocumentValidator,
        wall: Callable[[], Instant],
        *,
        from_api: bool = False,
    ) -> None:
        """`wall`: its time. `from_api`: what it writes comes through the API of a server."""
        self._wall = wall
        self._from_api = from_api
        self._store = store
        self._languages = languages
        self._validator = validator
        self._runnable: dict[ResourceKind, Dialect] = {}
        self._meant: dict[tuple[str, str, str], Meant] = {}  # what references may mean; the names alone decide

    def on(self, store: Store) -> "Catalog":
        """The same catalog, through another view of its store."""
        other = object.__new__(Catalog)
        other.__dict__ |= self.__dict__
        other._store = store
        return other

    # Kinds.

    @property
    def kinds(self) -> list[ResourceKind]:
        return [kind for language in self._languages.values() for kind in language.kinds]

    def kind(self, name: str) -> ResourceKind:
        """The kind that somebody means who types a name, a plural or a short name of it."""
        kind = next((kind for kind in self.kinds if kind.is_called(name)), None)
        if kind is None:
            names = [name for kind in self.kinds for name in (kind.name.lower(), kind.plural)]
            raise UnknownKind(f"there is no kind {name!r}{guess(name.lower(), names)}")
        return kind

    @property
    def runnable(self) -> Mapping[ResourceKind, Dialect]:
        """The kinds of documents that can be run, and their languages."""
        if not self._runnable:
            kinds = [(kind, language) for language in self._languages.values() for kind in language.kinds]
            self._runnable.update((kind, language) for kind, language in kinds if kind.can_run)
        return self._runnable

    def language_of(self, kind: ResourceKind) -> Dialect:
        if kind in self.runnable:
            return self.runnable[kind]
        return next(language for language in self._languages.values() if kind in language.kinds)

    def document_kind(self, language: str) -> ResourceKind | None:
        """The kind of the documents of a language."""
        dialect = self._languages.get(language)
        return next((kind for kind in dialect.kinds if kind.can_run), None) if dialect is not None else None

    # Reading.

    async def get(self, kind: ResourceKind, name: str, namespace: str = "") -> Resource:
        return await read_document(await self.row(kind, name, namespace))

    def key(self, kind: ResourceKind, name: str, namespace: str = "") -> ResourceKey:
        return key_of(kind, name, namespace)

    async def row(self, kind: ResourceKind, name: str, namespace: str = "") -> ResourceRow:
        key = key_of(kind, name, namespace)
        row = (await self._store.resources([key])).get(key)
        if row is None:
            place = f" in namespace {key.namespace!r}" if kind.has_namespace else ""
            raise ResourceNotFound(f"there is no {kind.title(name)}{place}")
        return row

    async def search(
        self, kind: ResourceKind, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> list[tuple[str, Resource]]:
        """Entries of a kind by their names in the catalog, in order of namespace and name; None: of all namespaces."""
        within = namespace if kind.has_namespace else None
        rows = entries(self._store, kind.name, within, labels)
        return [(row.key.name, await read_document(row)) async for row in rows]

    async def text(self, kind: ResourceKind, name: str, namespace: str = "", generation: int | None = None) -> bytes:
        """The text of an entry that can be run: as it was written, now or in an earlier generation."""
        row = await self.row(kind, name, namespace)
        if generation is None or generation == row.generation:
            return row.source or row.body
        edition = await self._store.edition(row.key, generation)
        if edition is not None:
            return edition.source or edition.body
        raise ResourceNotFound(f"{kind.title(name)} has no version {generation}; the latest is {row.generation}")

    async def editions(self, kind: ResourceKind, name: str, namespace: str = "") -> list[EditionRow]:
        key = key_of(kind, name, namespace)
        return await self._store.list_editions(key.kind, key.namespace, key.name)

    async def find(self, reference: str, namespace: str = "", language: str = "") -> Runnable | None:
        """The entry that can be run and is called so: `name`, `namespace/name`, a path; `kind/…`; with `@version`.

        With a `namespace` it is found there only, otherwise in the one that the reference names, or the default one.
        With a `language` other documents of that name do not count.
        """
        asked = (reference, namespace, language)
        generation, meant = self._meant.get(asked) or self._entries_called(*asked)
        if len(reference) <= LONGEST_REFERENCE and asked not in self._meant:
            if len(self._meant) >= MOST_REFERENCES:
                self._meant.clear()
            self._meant[asked] = generation, meant
        rows = await self._store.resources([key for _, key in meant])
        matches = {key: kind for kind, key in meant if key in rows}
        if len(matches) > 1:
            titles = " and ".join(f"{kind.name.lower()}/{key.name}" for key, kind in matches.items())
            raise Conflict(f"{reference!r} is ambiguous: {titles}", hint="Name one of them.")
        for key, kind in matches.items():
            row = rows[key]
            if generation in (None, row.generation):
                return Runnable(kind, key, row.generation, row.source or row.body, row.from_api)
            text = await self.text(kind, key.name, key.namespace, generation)
            return Runnable(kind, key, generation, text, row.from_api)
        return None

    def _entries_called(self, reference: str, namespace: str, language: str) -> Meant:
        """The generation that a reference asks for, and the entries that it may mean."""
        name, _, version = reference.rpartition("@")
        is_number = version.isascii() and version.isdecimal() and len(version) <= 18
        generation = int(version) if name and is_number else None
        called = reference if generation is None else name
        kinds = [kind for kind in self.runnable if language in ("", self.language_of(kind).name)]
        meant = [(kind, key) for kind in kinds for key in _keys_called(kind, called, namespace)]
        prefix, _, rest = called.partition("/")
        named = [kind for kind in kinds if rest and kind.is_called(prefix)]
        return generation, meant + [(kind, key) for kind in named for key in _keys_called(kind, rest, namespace)]

    async def callee(self, lookup: CalleeLookup) -> Callee | None:
        """The document that goes by a name, ready to be run by another one of its namespace."""
        reference = lookup.name if lookup.version is None else f"{lookup.name}@{lookup.version}"
        try:
            runnable = await self.find(reference, lookup.namespace, lookup.language)
        except (Conflict, ResourceNotFound):
            return None
        if runnable is None or (lookup.version is not None and str(runnable.generation) != lookup.version):
            return None
        language = self.language_of(runnable.kind)
        validated = await self._validator.validate(language, runnable.text, namespace=lookup.namespace)
        calls = calls_others(language, runnable.text)
        return Callee(language.name, validated.pinned, calls, runnable.from_api)

    # Writing.

    async def apply(
        self,
        texts: Sequence[AppliedDocument],
        namespace: str = "",
        *,
        versions: Mapping[ResourceKey, int] | None = None,
        dry_run: bool = False,
    ) -> tuple[list[Change], list[Finding]]:
        """What became of each entry, and the warnings. Where anything is wrong nothing is stored: `Rejected`.

        `versions`: only if these entries still have these versions; 0: if they are not there.
        """
        declared, findings = await self.declared(texts, namespace)
        entries = [entry for entry in declared if not entry.kind.of_runs]
        run_files = {entry.file for entry in declared if entry.kind.of_runs}  # what becomes of a run is not known here

        async def attempt() -> tuple[list[Change], list[Finding]] | CatalogConflict:
            rows = await self._store.resources([entry.key for entry in entries])
            for entry in entries:
                row, expected = rows.get(entry.key), (versions or {}).get(entry.key)
                if expected is not None and expected != (0 if row is None else row.version):
                    raise version_conflict(entry.kind, entry.key)
            at = self._wall()
            steps = [compare(entry, rows.get(entry.key), at, from_api=self._from_api) for entry in entries]
            unchanged = (
                {entry.file for entry in entries}
                - {step.entry.file for step in steps if step.outcome is not Outcome.UNCHANGED}
                - run_files
            )
            changed = [text for text in texts if text.file not in unchanged]  # an unchanged one was validated before
            all_findings = [*findings, *await self._validated(changed, texts, namespace)]
            if any(finding.problem.severity is Severity.ERROR for finding in all_findings):
                raise Rejected(all_findings)
            warned = [self._warned(step, [other.entry for other in steps], all_findings) for step in steps]
            writes = [write for step in warned for write in with_mark(step)]
            conflict = await self._store.write_catalog(writes) if writes and not dry_run else None
            return conflict or ([step.change for step in steps], all_findings)

        failure = Conflict("other processes keep changing the same entries; nothing was stored", hint="Try again.")
        return await retry_on_conflict(attempt, failure)

    def _warned(self, step: Step, all_of_them: Sequence[Entry], findings: Sequence[Finding]) -> Step:
        """The warnings about an entry become part of its status."""
        entry, language = step.entry, self.language_of(step.entry.kind)
        if step.write is None or step.outcome is Outcome.UNCHANGED or entry.status is None:
            return step
        later = [
            entry_behind.line
            for entry_behind in all_of_them
            if entry_behind.file == entry.file and entry_behind.line > entry.line
        ]
        texts = [
            finding.problem.message
            for finding in findings
            if finding.file == entry.file
            and entry.line <= (finding.problem.line or 0) < min(later, default=sys.maxsize)
        ]
        status = language.admitted(jsontext.decode(entry.body), texts)
        return replace(step, write=replace(step.write, status=with_status(status, step.write.status)))

    async def declared(self, texts: Sequence[AppliedDocument], namespace: str) -> tuple[list[Entry], list[Finding]]:
        """As `entries`; long texts are read in a thread."""
        size = WORK_OF_TEXT * sum(len(applied.text) for applied in texts)
        return await done_aside(size, lambda: self.entries(texts, namespace))

    def entries(self, texts: Sequence[AppliedDocument], namespace: str) -> tuple[list[Entry], list[Finding]]:
        """What these texts declare, and what the catalog cannot take of it."""
        entries: list[Entry] = []
        findings: list[Finding] = []
        entry_by_key: dict[ResourceKey, Entry] = {}
        for applied in texts:
            text = applied.text.encode()
            language = self._validator.language_of(text)
            if language is None:
                problem = Problem("DOC-LANGUAGE", in_no_language(self._languages), "", 1, 1, LANGUAGE_HINT)
                findings.append(Finding(applied.file, problem))
                continue
            for declared in language.declares(text, applied.file):
                entry = read_entry(language, declared, applied, namespace)
                refused = refusal(entry, namespace, entry_by_key.get(entry.key))
                entry_by_key[entry.key] = entry
                if refused is None:
                    entries.append(entry)
                else:
                    findings.append(Finding(applied.file, refused))
        return entries, findings

    async def _validated(
        self, texts: Sequence[AppliedDocument], all_of_them: Sequence[AppliedDocument], namespace: str
    ) -> list[Finding]:
        findings = []
        for applied in texts:
            text = applied.text.encode()
            language = await self._validator.find_language(text)
            if language is not None:
                validated = await self._validator.validate(
                    language, text, all_of_them, namespace=namespace or DEFAULT_NAMESPACE
                )
                findings += [Finding(applied.file, problem) for problem in validated.problems]
                declares = partial(language.declares, text, applied.file)
                if not validated.has_errors and not await done_aside(WORK_OF_TEXT * len(text), declares):
                    message = f"this {language.name} declares nothing that the catalog can store"
                    findings.append(Finding(applied.file, Problem("CATALOG-NOTHING", message, line=1, column=1)))
        return findings

    async def write_status(
        self, kind: ResourceKind, name: str, namespace: str, status: Any, version: int | None = None
    ) -> None:
        """Replace the status of an entry; its generation stays. `seen`: only if it still has this version."""

        async def attempt() -> CatalogConflict | None:
            row = await self.row(kind, name, namespace)
            if version is not None and row.version != version:
                raise version_conflict(kind, row.key)
            write = ResourceWrite(
                row.key,
                row.uid,
                row.generation,
                row.body,
                row.source,
                row.labels,
                jsontext.encode(status),
                row.version,
            )
            return await self._store.write_catalog([write])

        await retry_on_conflict(attempt, version_conflict(kind, key_of(kind, name, namespace)))

    async def delete(
        self, keys: Sequence[ResourceKey], versions: Mapping[ResourceKey, int] | None = None
    ) -> list[ResourceKey]:
        """Remove those of the entries that are there, in one transaction; which. What runs have pinned stays theirs.

        `versions`: only if these entries still have these versions.
        """

        async def attempt() -> list[ResourceKey] | CatalogConflict:
            rows = await self._store.resources([*keys, *map(pending_mark, keys)])
            for key, version in (versions or {}).items():
                if key not in rows or rows[key].version != version:
                    raise version_conflict(self.kind(key.kind), key)
            removals = [ResourceRemoval(row.key, row.version) for row in rows.values()]
            conflict = await self._store.write_catalog(removals) if removals else None
            return conflict or [key for key in keys if key in rows]

        failure = Conflict("other processes keep changing the same entries; nothing was removed", hint="Try again.")
        return await retry_on_conflict(attempt, failure)


def _keys_called(kind: ResourceKind, reference: str, within: str) -> list[ResourceKey]:
    if kind.has_paths or not kind.has_namespace:
        return [key_of(kind, reference, within)]
    namespace, slash, name = reference.rpartition("/")
    if "/" in namespace or (slash and not namespace) or (namespace and within not in ("", namespace)):
        return []
    return [key_of(kind, name, namespace or within)]


def key_of(kind: ResourceKind, name: str, namespace: str = "") -> ResourceKey:
    return ResourceKey(kind.name, (namespace or DEFAULT_NAMESPACE) if kind.has_namespace else "", name)
