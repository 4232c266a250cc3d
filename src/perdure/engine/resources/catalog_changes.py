"""Entries on their way into the catalog: as they were declared, and what they change of what is there."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from perdure.engine.random_ids import new_uid
from perdure.engine.resources.lookup_answers import to_second
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.documents.problems import Problem
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.documents.validation import AppliedDocument, DeclaredResource
from perdure.kernel.errors import Conflict, InvalidDocument
from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant
from perdure.stores.protocol import CatalogConflict, ResourceRow, ResourceWrite

# Read, change and write again entries of the catalog that others change at the same time.

T = TypeVar("T")

TRIES = 200
"""In every round one of the writers succeeds, so this many may change one entry at once."""

LONGEST_PAUSE = 0.02  # seconds


async def retry_on_conflict(attempt: Callable[[], Awaitable[T | CatalogConflict]], failure: Conflict) -> T:
    """Call `attempt` until its write is not refused; after `TRIES` calls raise `failure`.

    `attempt` reads what it changes, writes it over the versions that it read, and returns the store's `CatalogConflict`
    if another process has changed one of them in between.
    """
    for number in range(TRIES):
        result = await attempt()
        if not isinstance(result, CatalogConflict):
            return result
        await asyncio.sleep(min(0.001 * number, LONGEST_PAUSE))
    raise failure


OWN_MANAGER = "perdure"
"""Who sets the fields of entries that are applied as documents, not through the Kubernetes API."""

GIVEN_BY_CATALOG = ("uid", "generation", "resourceVersion", "creationTimestamp")


class Outcome(StrEnum):
    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"


class Change(msgspec.Struct, frozen=True):
    """What became of one entry."""

    kind: ResourceKind
    key: ResourceKey
    outcome: Outcome
    generation: int
    file: str


class Finding(msgspec.Struct, frozen=True):
    """A problem, and the file that has it."""

    file: str
    problem: Problem

    def describe(self) -> str:
        return self.problem.describe(self.file)

    def plain(self) -> dict[str, Any]:
        return {"file": self.file, **msgspec.to_builtins(self.problem)}


class Rejected(InvalidDocument):
    """Something that was to be applied is not in order; nothing was stored. Every problem is listed."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = findings
        super().__init__(
            "\n".join(finding.describe() for finding in findings), problems=[finding.plain() for finding in findings]
        )


class Entry(msgspec.Struct, frozen=True):
    """An entry as it was declared, ready to be compared with what is there."""

    kind: ResourceKind
    key: ResourceKey
    body: bytes
    source: bytes
    labels: dict[str, str]
    status: dict[str, Any] | None  # its status once it is admitted
    seen: int | None  # the version that the writer says it has changed
    file: str
    line: int
    managers: bytes | None = None  # who has set its fields then; None: who writes it sets what it changes


class Step(msgspec.Struct, frozen=True):
    """One entry's part of an application."""

    entry: Entry
    outcome: Outcome
    generation: int
    write: ResourceWrite | None = None

    @property
    def change(self) -> Change:
        return Change(self.entry.kind, self.entry.key, self.outcome, self.generation, self.entry.file)


def _expected(version: str) -> int | None:
    """The version that an entry must have; None: any; -1: one that no entry has."""
    if not (version.isascii() and version.isdecimal()):
        return None
    return int(version) if len(version) <= 18 else -1


def read_entry(language: Dialect, declared: DeclaredResource, applied: AppliedDocument, namespace: str) -> Entry:
    kind = next(kind for kind in language.kinds if kind.name == declared.kind)
    declared = declared.placed(kind, namespace or DEFAULT_NAMESPACE)
    declared_metadata: dict[str, Any] = declared.body.get("metadata", {})
    metadata = {name: value for name, value in declared_metadata.items() if name not in GIVEN_BY_CATALOG}
    body = {name: value for name, value in declared.body.items() if name != "status"}
    own_labels = declared_metadata.get("labels")
    labels = {name: str(value) for name, value in own_labels.items()} if isinstance(own_labels, dict) else {}
    if applied.labels:
        labels |= dict(applied.labels)
        metadata["labels"] = labels
    version = str(declared_metadata.get("resourceVersion", ""))
    return Entry(
        kind,
        declared.key,
        jsontext.encode({**body, "metadata": metadata}),
        declared.source,
        labels,
        language.admitted(body),
        _expected(version),
        applied.file,
        declared.line,
        applied.managers,
    )


def refusal(entry: Entry, namespace: str, earlier: Entry | None) -> Problem | None:
    """What only the catalog can find wrong with an entry."""
    title = entry.kind.title(entry.key.name)
    if entry.kind.of_runs and not entry.kind.is_request:
        hint = "Perdure writes it during a run. Remove it from the file, or start a run with `perdure run`."
        message = f"{title}: a {entry.kind.name} cannot be applied, it shows a part of a run"
        return Problem("CATALOG-KIND", message, "kind", entry.line, 1, hint)
    if namespace and entry.kind.has_namespace and entry.key.namespace != namespace:
        message = f"{title} is in namespace {entry.key.namespace!r}, not in {namespace!r} as asked"
        return Problem("CATALOG-NAMESPACE", message, "metadata.namespace", entry.line, 1)
    if earlier is not None and entry.key.name:
        message = f"{title} is declared twice, the first time in {earlier.file}:{earlier.line}"
        return Problem("CATALOG-TWICE", message, "metadata.name", entry.line, 1)
    return None


def compare(entry: Entry, row: ResourceRow | None, at: Instant, *, from_api: bool = False) -> Step:
    """What an entry changes of what is there. `from_api`: it is written through the API of a server."""
    if row is None:
        status = with_status(entry.status, entry.kind.new_status.encode() or None)
        head = (entry.key, new_uid(), 1, entry.body, entry.source, entry.labels, status, 0)
        return Step(entry, Outcome.CREATED, 1, ResourceWrite(*head, from_api, _managers(entry, None, at)))
    is_same = entry.source == row.source and _canonical(entry) == _canonical(row)
    if is_same and (from_api or not row.from_api):  # what an operator applies himself is his from then on
        head = (row.key, row.uid, row.generation, row.body, row.source, row.labels, row.status, row.version)
        again = None if entry.managers in (None, row.managers or b"[]") else ResourceWrite(*head, None, entry.managers)
        return Step(entry, Outcome.UNCHANGED, row.generation, again)
    if entry.seen not in (None, row.version):
        raise version_conflict(entry.kind, entry.key)
    generation = row.generation + (_content(entry) != _content(row))
    status = with_status(entry.status, row.status)
    head = (entry.key, row.uid, generation, entry.body, entry.source, entry.labels, status, row.version)
    write = ResourceWrite(*head, from_api, _managers(entry, row, at))
    return Step(entry, Outcome.CONFIGURED, generation, write)


def _managers(entry: Entry, row: ResourceRow | None, at: Instant) -> bytes | None:
    """Of kinds that no API shows with their managers none are kept."""
    if entry.managers is not None or not entry.kind.version:
        return entry.managers
    from perdure.engine.resources.field_managers import UPDATE, FieldManager, updated_text

    manager = FieldManager(OWN_MANAGER, UPDATE, entry.kind.api_version, to_second(at), frozenset())
    before, managers = (None, None) if row is None else (row.body, row.managers)
    return updated_text(before, entry.body, managers, manager)


def with_status(members: dict[str, Any] | None, before: bytes | None) -> bytes | None:
    """What others have written to the status stays; what admission says is said anew."""
    if members is None:
        return before
    return jsontext.encode({**({} if before is None else jsontext.decode(before)), **members})


def pending_mark(key: ResourceKey) -> ResourceKey:
    """The entry that marks a request as not answered: written and removed together with the request."""
    return ResourceKey(f"Pending{key.kind}", key.namespace, key.name)


def with_mark(step: Step) -> list[ResourceWrite]:
    """What is written for an entry: itself, and for a new request the mark that it waits for its answer."""
    if step.write is None:
        return []
    if not step.entry.kind.is_request or step.outcome is not Outcome.CREATED:
        return [step.write]
    return [step.write, ResourceWrite(pending_mark(step.entry.key), new_uid(), 1, b"{}", b"", {}, None, 0)]


def _content(entry: Entry | ResourceRow) -> bytes:
    """What a new generation is counted for: the wording where it was kept, else everything but the metadata."""
    if entry.source:
        return entry.source
    body = jsontext.decode(entry.body)
    return jsontext.canonical({name: value for name, value in body.items() if name != "metadata"})


def _canonical(entry: Entry | ResourceRow) -> bytes:
    return jsontext.canonical(jsontext.decode(entry.body))


class VersionConflict(Conflict):
    """An entry has another version than the one that was named."""


def version_conflict(kind: ResourceKind, key: ResourceKey) -> VersionConflict:
    return VersionConflict(f"{kind.title(key.name)} was changed meanwhile", hint="Read it again and repeat the change.")
