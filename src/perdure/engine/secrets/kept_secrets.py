"""Secrets that a store keeps as entries of the catalog: what they are called is their body, their values are encrypted.

The values are in the status of the entry, of which the catalog keeps no earlier versions: a changed value is gone. Each
text is bound to its entry.
"""

from collections.abc import Mapping
from functools import partial

import msgspec

from perdure.engine.resources.catalog_changes import retry_on_conflict
from perdure.engine.secrets.secret_encryption import SecretKeys
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.errors import Conflict
from perdure.kernel.json_values import jsontext
from perdure.stores.protocol import CatalogConflict, ResourceRow, ResourceWrite, Store

SECRET_KIND = "Secret"
LOST_RACE = "others keep changing the same secret; nothing was stored"


class _Encrypted(msgspec.Struct, frozen=True):
    """The status of an entry."""

    encrypted: str


class KeptSecrets:
    def __init__(self, store: Store, keys: SecretKeys) -> None:
        self._store = store
        self._keys = keys

    def status(self, key: ResourceKey, values: Mapping[str, str]) -> bytes:
        """What is kept of the values, Base64 each; `SecretsKeyMissing` if there is no key to encrypt them with."""
        return jsontext.encode(_Encrypted(self._keys.encrypt(jsontext.encode(dict(values)), _place(key))))

    def values(self, row: ResourceRow) -> dict[str, str]:
        if row.status is None:
            return {}
        kept = msgspec.json.decode(row.status, type=_Encrypted)
        values: dict[str, str] = jsontext.decode(self._keys.decrypt(kept.encrypted, _place(row.key)))
        return values

    async def rekey(self) -> tuple[int, int]:
        """Encrypt everything with the first key; how many were written again, and how many there are."""
        keys = [row.key for row in await self._store.list_resources(SECRET_KIND)]
        lost = Conflict(LOST_RACE, hint="Run it again: it continues with what is left.")
        changes = [await retry_on_conflict(partial(self._encrypt_again, key), lost) for key in keys]
        return sum(changes), len(keys)

    async def _encrypt_again(self, key: ResourceKey) -> bool | CatalogConflict:
        row = (await self._store.resources([key])).get(key)
        if row is None or row.status is None:
            return False
        if self._keys.is_current(msgspec.json.decode(row.status, type=_Encrypted).encrypted):
            return False
        status = self.status(key, self.values(row))
        write = ResourceWrite(row.key, row.uid, row.generation, row.body, b"", row.labels, status, row.version)
        return await self._store.write_catalog([write]) or True


def _place(key: ResourceKey) -> str:
    return f"{key.kind}/{key.namespace}/{key.name}"
