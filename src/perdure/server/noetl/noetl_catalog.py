"""Playbooks of the catalog by path and version, as NoETL's clients name them, and the version that a run has.

A `catalog_id` names one version: the entry's uid and its generation. Text comes in plain or as Base64.
"""

import asyncio
import base64
import binascii
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from perdure.engine.decision_threads import WORK_OF_TEXT, done_aside
from perdure.engine.resources.catalog import Runnable
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.json_values.jsontext import PIECE
from perdure.kernel.json_values.values import Instant, digest
from perdure.stores.protocol import EditionRow, RunRow

if TYPE_CHECKING:
    from perdure.engine.client import Client
    from perdure.server.calls import ApiCall

LANGUAGE = "playbook"
KIND = "Playbook"
LATEST = "latest"
PATHS_KEPT = 1_000  # of pinned documents
DIGESTS_KEPT = 100_000  # of versions
MOST_LISTED = 1 << 20  # bytes of documents in one list


@dataclass(frozen=True, slots=True)
class PlaybookVersion:
    row: EditionRow
    text: bytes = b""  # as it was registered; in lists not there
    body: bytes = b""  # as JSON; in lists not always there

    @property
    def path(self) -> str:
        return self.row.key.name

    @property
    def version(self) -> int:
        return self.row.generation

    @property
    def catalog_id(self) -> str:
        return f"{self.row.uid}-{self.row.generation}"

    @property
    def created_at(self) -> Instant:
        return self.row.created_at

    def runnable(self, kind: ResourceKind) -> Runnable:
        return Runnable(kind, self.row.key, self.version, self.text, self.row.from_api)


async def list_versions(client: "Client", namespace: str, path: str | None = None) -> list[PlaybookVersion]:
    """Every version, the newest first, without what it says: all of them together may be very much."""
    rows = await client.store.list_editions(KIND, namespace, path)
    return [PlaybookVersion(row) for row in reversed(rows)]


async def with_text(client: "Client", version: PlaybookVersion) -> PlaybookVersion | None:
    edition = await client.store.edition(version.row.key, version.version)
    if edition is None:
        return None
    return PlaybookVersion(version.row, edition.source or edition.body, edition.body)


async def with_documents(client: "Client", versions: Sequence[PlaybookVersion]) -> list[PlaybookVersion]:
    """The newest ones with what they say, as far as it is not too much for one answer."""
    shown: list[PlaybookVersion] = []
    left = MOST_LISTED
    for version in versions:
        left -= version.row.size
        shown.append((left >= 0 and await with_text(client, version)) or version)
    return shown


async def find_version(client: "Client", namespace: str, path: str, version: int | None) -> PlaybookVersion | None:
    """The version of a path, by default the latest; a path that there is not may be a `catalog_id`."""
    versions = await list_versions(client, namespace, path)
    if not versions:
        return await find_by_id(client, namespace, path)
    newest_first = sorted(versions, key=lambda entry: entry.version, reverse=True)
    meant = next((entry for entry in newest_first if version in (None, entry.version)), None)
    return None if meant is None else await with_text(client, meant)


async def find_by_id(client: "Client", namespace: str, catalog_id: str) -> PlaybookVersion | None:
    versions = await list_versions(client, namespace)
    meant = next((entry for entry in versions if entry.catalog_id == catalog_id), None)
    return None if meant is None else await with_text(client, meant)


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

    digests: ClassVar[OrderedDict[str, bytes]] = OrderedDict()
    """Of the text of each version, which never changes either."""

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
            if await self._digest(version) == row.program:
                return RunVersion(path, version.version, version.catalog_id)
        return RunVersion(path)

    async def _digest(self, version: PlaybookVersion) -> bytes:
        key = version.catalog_id
        if key not in self.digests:
            await asyncio.sleep(0)  # a path may have many versions
            entry = await with_text(self._client, version)
            self.digests[key] = b"" if entry is None else digest(entry.text)
            if len(self.digests) > DIGESTS_KEPT:
                self.digests.popitem(last=False)
        return self.digests[key]

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
    packed = "".join("".join(content[at : at + PIECE].split()) for at in range(0, len(content), PIECE))
    if "=" in packed[:-2]:
        return content
    pieces = (packed[at : at + PIECE] for at in range(0, len(packed), PIECE))
    try:
        return b"".join(base64.b64decode(piece, validate=True) for piece in pieces).decode()
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
