"""Playbooks of the catalog by path and version, as NoETL's clients name them, and the version that a run has.

A `catalog_id` names one version: the entry's uid and its generation. Text comes in plain or as Base64.
"""

import base64
import binascii
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from perdure.engine.catalog import Runnable
from perdure.engine.decision_threads import WORK_OF_TEXT, done_aside
from perdure.kernel.lookups import ResourceKey
from perdure.kernel.resource_kinds import ResourceKind
from perdure.kernel.values import Instant, digest
from perdure.stores.protocol import ResourceRow, RunRow

if TYPE_CHECKING:
    from perdure.engine.client import Client
    from perdure.server.calls import ApiCall

LANGUAGE = "playbook"
KIND = "Playbook"
LATEST = "latest"
PATHS_KEPT = 1_000  # of pinned documents


@dataclass(frozen=True, slots=True)
class PlaybookVersion:
    key: ResourceKey
    version: int
    catalog_id: str
    text: bytes  # as it was registered
    body: bytes  # as JSON
    created_at: Instant
    from_api: bool

    @property
    def path(self) -> str:
        return self.key.name

    def runnable(self, kind: ResourceKind) -> Runnable:
        return Runnable(kind, self.key, self.version, self.text, self.from_api)


async def list_versions(client: "Client", namespace: str, path: str | None = None) -> list[PlaybookVersion]:
    """Every version, the newest first."""
    if path is None:
        rows: Iterable[ResourceRow] = await client.store.list_resources(KIND, namespace)
    else:
        key = ResourceKey(KIND, namespace, path)
        rows = (await client.store.resources([key])).values()
    versions = [version for row in rows for version in await _versions(client, row)]
    return sorted(versions, key=lambda version: (version.created_at, version.version), reverse=True)


async def _versions(client: "Client", row: ResourceRow) -> list[PlaybookVersion]:
    return [
        PlaybookVersion(
            row.key,
            edition.generation,
            f"{row.uid}-{edition.generation}",
            edition.source or edition.body,
            edition.body,
            edition.created_at,
            row.from_api,
        )
        for edition in await client.store.editions(row.key)
    ]


async def find_version(client: "Client", namespace: str, path: str, version: int | None) -> PlaybookVersion | None:
    """The version of a path, by default the latest; a path that there is not may be a `catalog_id`."""
    versions = await list_versions(client, namespace, path)
    if not versions:
        return await find_by_id(client, namespace, path)
    newest_first = sorted(versions, key=lambda entry: entry.version, reverse=True)
    return next((entry for entry in newest_first if version in (None, entry.version)), None)


async def find_by_id(client: "Client", namespace: str, catalog_id: str) -> PlaybookVersion | None:
    uid, _, version = catalog_id.rpartition("-")
    if not uid or not version.isdecimal():
        return None
    rows = await client.store.list_resources(KIND, namespace)
    row = next((row for row in rows if row.uid == uid), None)
    if row is None:
        return None
    return next((entry for entry in await _versions(client, row) if entry.catalog_id == catalog_id), None)


@dataclass(frozen=True, slots=True)
class RunVersion:
    """What a run was started from; version 0: from no version that the catalog has."""

    path: str
    version: int = 0
    catalog_id: str = ""


class RunVersions:
    """Which version of which path runs have. Looked up once for each document, within one request."""

    paths: ClassVar[OrderedDict[bytes, str]] = OrderedDict()
    """By digest of the pinned document, for all requests: it never changes, nor does the path that it gives itself."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._known: dict[tuple[str, bytes], RunVersion] = {}

    async def of(self, row: RunRow) -> RunVersion:
        key = row.namespace, row.program
        if key not in self._known:
            self._known[key] = await self._find(row)
        return self._known[key]

    async def of_all(self, rows: Sequence[RunRow]) -> list[RunVersion]:
        return [await self.of(row) for row in rows]

    async def _find(self, row: RunRow) -> RunVersion:
        path = await self._path(row)
        for version in await list_versions(self._client, row.namespace, path):
            if digest(version.text) == row.program:
                return RunVersion(path, version.version, version.catalog_id)
        return RunVersion(path)

    async def _path(self, row: RunRow) -> str:
        path = self.paths.get(row.program)
        if path is None:
            pinned = await self._client.store.program(row.program)
            text = b"" if pinned is None else pinned[1]
            declares = self._client.languages[LANGUAGE].declares
            declared = await done_aside(WORK_OF_TEXT * len(text), lambda: declares(text))
            path = self.paths[row.program] = declared[0].name if declared else row.name
            if len(self.paths) > PATHS_KEPT:
                self.paths.popitem(last=False)
        return path


def home_of(call: "ApiCall") -> str:
    """Where paths and credentials of a caller are: in its only namespace, else in `default` (SRV-009)."""
    return call.caller.meant_namespace(call.caller.only_namespace or "default")


def read_content(content: str) -> str:
    """The text of a document that was sent plain or as Base64. A Playbook has colons, and Base64 has none."""
    if ":" in content:
        return content
    try:
        return base64.b64decode("".join(content.split()), validate=True).decode()
    except (binascii.Error, ValueError):
        return content


def read_version(version: int | str | None) -> int | None:
    """The number of a version; None: the latest; 0, which there is not, for what is no version."""
    if version is None or isinstance(version, int):
        return version
    text = version.strip().lower()
    if text in ("", LATEST):
        return None
    whole = text.removesuffix(".0")
    return int(whole) if whole.isascii() and whole.isdecimal() and len(whole) < 10 else 0
