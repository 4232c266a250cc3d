"""Credentials that a store keeps, by namespace and name: as references to secrets of the host, or encrypted.

An entry of the catalog that no language declares. What it says, with the names of its members, is its body; the values
are in its status, of which the catalog keeps no earlier versions: a changed or removed value is gone.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from perdure.engine.random_ids import new_uid
from perdure.engine.resources.catalog import ResourceNotFound
from perdure.engine.resources.catalog_changes import retry_on_conflict
from perdure.engine.resources.lookup_answers import entries
from perdure.engine.secrets.kept_secrets import KeptSecrets
from perdure.engine.secrets.secret_encryption import SecretKeys
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.errors import Conflict
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant
from perdure.kernel.secrets.credentials import is_reference, secret_texts
from perdure.stores.protocol import CatalogConflict, ResourceRemoval, ResourceRow, ResourceWrite, Store

KIND = "Credential"
MOST_KEPT = 1_000  # of a namespace: servers look at all of them again and again
LOST_RACE = "other processes keep changing the same credential; nothing was stored"


class CredentialFacts(msgspec.Struct, frozen=True):
    """What may be told of a credential: never a value."""

    name: str
    type: str
    members: list[str] = []
    meta: Any = None
    tags: list[str] = []
    description: str | None = None


class KeptCredential(msgspec.Struct, frozen=True):
    id: str
    facts: CredentialFacts
    created_at: Instant
    updated_at: Instant


class _Kept(msgspec.Struct, frozen=True):
    """The status of an entry: one of both."""

    references: dict[str, Any] | None = None
    encrypted: str | None = None


class KeptCredentials:
    def __init__(self, store: Store, keys: SecretKeys) -> None:
        self._store = store
        self.keys = keys
        self._rows: dict[tuple[str, str], ResourceRow] = {}
        self.secrets = KeptSecrets(store, keys)

    def on(self, store: Store) -> "KeptCredentials":
        """The same, through this access to the store."""
        other = KeptCredentials(store, self.keys)
        other._rows = self._rows
        return other

    async def put(self, namespace: str, facts: CredentialFacts, data: Mapping[str, Any]) -> KeptCredential:
        """Create or replace a credential. Values that are no references need a key: `SecretsKeyMissing`."""
        key = ResourceKey(KIND, namespace, facts.name)
        if len(await self._store.list_keys(KIND, namespace)) >= MOST_KEPT and await self._is_new(key):
            raise Conflict(f"a namespace has at most {MOST_KEPT} credentials", hint="Remove some.")
        body = jsontext.encode(msgspec.structs.replace(facts, members=sorted(data)))
        kept = self._kept(key, data)

        async def attempt() -> bool | CatalogConflict:
            row = (await self._store.resources([key])).get(key)
            uid, seen = (new_uid(), 0) if row is None else (row.uid, row.version)
            write = ResourceWrite(key, uid, 1, body, b"", {}, kept, seen, True)
            return await self._store.write_catalog([write]) or True

        await retry_on_conflict(attempt, Conflict(LOST_RACE, hint="Try again."))
        return _credential(await self._row(namespace, facts.name))

    async def _is_new(self, key: ResourceKey) -> bool:
        return not await self._store.resources([key])

    def _kept(self, key: ResourceKey, data: Mapping[str, Any]) -> bytes:
        if not self.keys.first and all(map(is_reference, secret_texts(data))):
            return jsontext.encode(_Kept(references=dict(data)))
        return jsontext.encode(_Kept(encrypted=self.keys.encrypt(jsontext.encode(data), _place(key))))

    async def list(self, namespace: str) -> Sequence[KeptCredential]:
        return [_credential(row) async for row in entries(self._store, KIND, namespace)]

    async def get(self, namespace: str, name_or_id: str) -> KeptCredential:
        return _credential(await self._row(namespace, name_or_id))

    async def delete(self, namespace: str, name_or_id: str) -> None:
        row = await self._row(namespace, name_or_id)
        conflict = await self._store.write_catalog([ResourceRemoval(row.key, row.version)])
        if conflict is not None:
            raise Conflict(LOST_RACE, hint="Try again.")
        self._rows.pop((namespace, row.key.name), None)

    async def _row(self, namespace: str, name_or_id: str) -> ResourceRow:
        key = ResourceKey(KIND, namespace, name_or_id)
        row = (await self._store.resources([key])).get(key)
        if row is None:
            rows = [row async for row in entries(self._store, KIND, namespace) if row.uid == name_or_id]
            row = rows[0] if rows else None
        if row is None:
            raise ResourceNotFound(f"there is no credential {name_or_id!r}", hint="Register it, or check its name.")
        return row

    # What tasks are given.

    async def value(self, namespace: str, name: str) -> dict[str, Any] | None:
        """The type and the members, with references as they were written; None: there is no such credential."""
        key = ResourceKey(KIND, namespace, name)
        row = (await self._store.resources([key])).get(key)
        if row is None:
            self._rows.pop((namespace, name), None)
            return None
        self._rows[namespace, name] = row
        return self._value(row)

    def known_value(self, namespace: str, name: str) -> dict[str, Any] | None:
        """The same, as this process has last seen it: what is masked is looked up without waiting."""
        row = self._rows.get((namespace, name))
        return None if row is None else self._value(row)

    async def refresh(self) -> None:
        """See all of them, because runs that are taken over may have used any."""
        self._rows = {(row.key.namespace, row.key.name): row async for row in entries(self._store, KIND)}

    def _value(self, row: ResourceRow) -> dict[str, Any]:
        kept = msgspec.json.decode(row.status or b"{}", type=_Kept)
        if kept.encrypted is not None:
            data = jsontext.decode(self.keys.decrypt(kept.encrypted, _place(row.key)))
        else:
            data = kept.references or {}
        return {"type": _facts(row).type, **data}

    async def rekey(self) -> tuple[int, int]:
        """Encrypt everything with the first key; how many were written again, and how many there are."""
        keys = [key for key, _ in await self._store.list_keys(KIND)]
        lost = Conflict(LOST_RACE, hint="Run it again: it continues with what is left.")
        changes = [await retry_on_conflict(partial(self._encrypt_again, key), lost) for key in keys]
        return sum(changes), len(keys)

    async def _encrypt_again(self, key: ResourceKey) -> bool | CatalogConflict:
        row = (await self._store.resources([key])).get(key)
        if row is None:
            return False
        kept = msgspec.json.decode(row.status or b"{}", type=_Kept)
        if kept.encrypted is not None and self.keys.is_current(kept.encrypted):
            return False
        data = {name: value for name, value in self._value(row).items() if name in _facts(row).members}
        status = self._kept(row.key, data)
        if status == row.status:
            return False
        write = ResourceWrite(row.key, row.uid, row.generation, row.body, b"", row.labels, status, row.version)
        return await self._store.write_catalog([write]) or True


def _place(key: ResourceKey) -> str:
    return f"{key.kind}/{key.namespace}/{key.name}"


def _facts(row: ResourceRow) -> CredentialFacts:
    return msgspec.json.decode(row.body, type=CredentialFacts)


def _credential(row: ResourceRow) -> KeptCredential:
    return KeptCredential(row.uid, _facts(row), row.created_at, row.updated_at)
