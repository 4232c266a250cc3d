"""Secrets that a store keeps as entries of the catalog: what they are called is their body, their values are encrypted.

The values are in the status of the entry, of which the catalog keeps no earlier versions: a changed value is gone. Each
text is bound to its entry. Tasks in this process are given the values, and those of ConfigMaps, of their namespace.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial

import msgspec

from perdure.engine.resources.catalog_changes import retry_on_conflict
from perdure.engine.secrets.secret_encryption import SecretKeys, SecretsKeyUnusable
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.errors import Conflict
from perdure.kernel.json_values import jsontext
from perdure.stores.protocol import CatalogConflict, ResourceRow, ResourceWrite, Store

SECRET_KIND, CONFIG_MAP_KIND = "Secret", "ConfigMap"
CONFIG = "config:"
"""How names of config maps begin among the names of secrets that a document has."""
MOST_BYTES = 32 << 20  # of entries that were seen before, beside those of the task that begins
KEYS_AT_ONCE = 64
LOST_RACE = "others keep changing the same secret; nothing was stored"


class _Encrypted(msgspec.Struct, frozen=True):
    """The status of an entry."""

    encrypted: str


class KeptSecrets:
    def __init__(self, store: Store, keys: SecretKeys) -> None:
        self._store = store
        self._keys = keys
        self._rows: dict[ResourceKey, ResourceRow] = {}  # as this process has last seen them

    def status(self, key: ResourceKey, values: Mapping[str, str]) -> bytes:
        """What is kept of the values, Base64 each; `SecretsKeyMissing` if there is no key to encrypt them with."""
        return jsontext.encode(_Encrypted(self._keys.encrypt(jsontext.encode(dict(values)), _place(key))))

    def values(self, row: ResourceRow) -> dict[str, str]:
        if row.status is None:
            return {}
        kept = msgspec.json.decode(row.status, type=_Encrypted)
        values: dict[str, str] = jsontext.decode(self._keys.decrypt(kept.encrypted, _place(row.key)))
        return values

    # What tasks are given: `name/key`.

    async def see(self, namespace: str, names: Iterable[str]) -> None:
        """Read those that a document names, before a task begins that may ask for them."""
        keys = {
            ResourceKey(CONFIG_MAP_KIND if name.startswith(CONFIG) else SECRET_KIND, namespace, _entry_of(name))
            for name in names
            if "/" in name
        }
        if keys:
            rows = await self._store.resources(list(keys))
            others = {key: row for key, row in self._rows.items() if key not in keys}
            self._rows = _latest(others, MOST_BYTES - sum(map(_size, rows.values()))) | rows

    async def look(self) -> None:
        """See those again that tasks have asked for. Others are seen before the first task begins that names them."""
        keys = list(self._rows)
        for begin in range(0, len(keys), KEYS_AT_ONCE):
            some = keys[begin : begin + KEYS_AT_ONCE]
            rows = await self._store.resources(some)
            self._rows = {key: rows.get(key, row) for key, row in self._rows.items() if key in rows or key not in some}

    def secret(self, namespace: str, name: str) -> str | None:
        """The value of one key. Raises `SecretsKeyUnusable`."""
        row = self._rows.get(ResourceKey(SECRET_KIND, namespace, _entry_of(name)))
        value = None if row is None else self.values(row).get(name.partition("/")[2])
        return None if value is None else _text(value)

    def all_keys(self, namespace: str, entry: str) -> dict[str, str]:
        """The values of all keys, by `name/key`. Raises `SecretsKeyUnusable`."""
        row = self._rows.get(ResourceKey(SECRET_KIND, namespace, entry))
        texts = {} if row is None else {key: _text(value) for key, value in self.values(row).items()}
        return {f"{entry}/{key}": text for key, text in texts.items() if text is not None}

    def texts(self, namespace: str, name: str) -> Iterator[str]:
        """What must be masked for `name/key`, or for `name/*`; nothing where the values cannot be read."""
        row = self._rows.get(ResourceKey(SECRET_KIND, namespace, _entry_of(name)))
        if row is None:
            return
        key = name.partition("/")[2]
        with suppress(SecretsKeyUnusable):
            values = self.values(row)
            texts = [_text(value) for known, value in values.items() if key in ("*", known)]
            yield from (text for text in texts if text)

    def config(self, namespace: str, name: str, key: str) -> str | None:
        row = self._rows.get(ResourceKey(CONFIG_MAP_KIND, namespace, name))
        if row is None:
            return None
        body = jsontext.decode(row.body)
        value: str | None = (body.get("data") or {}).get(key)
        binary = (body.get("binaryData") or {}).get(key)
        return value if value is not None or binary is None else _text(binary)

    async def rekey(self) -> tuple[int, int]:
        """Encrypt everything with the first key; how many were written again, and how many there are."""
        keys = [key for key, _ in await self._store.list_keys(SECRET_KIND)]
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
        write = ResourceWrite(row.key, row.uid, row.generation, row.body, row.source, row.labels, status, row.version)
        return await self._store.write_catalog([write]) or True


def _latest(rows: dict[ResourceKey, ResourceRow], room: int) -> dict[ResourceKey, ResourceRow]:
    """Those that were seen last, as far as there is room."""
    kept: dict[ResourceKey, ResourceRow] = {}
    for key, row in reversed(rows.items()):
        room -= _size(row)
        if room < 0:
            break
        kept[key] = row
    return dict(reversed(kept.items()))


def _size(row: ResourceRow) -> int:
    return 500 + len(row.body) + len(row.status or b"")


def _entry_of(name: str) -> str:
    return name.removeprefix(CONFIG).partition("/")[0]


def _text(value: str) -> str | None:
    """None: it is no text, and no task can use it."""
    try:
        return base64.b64decode(value).decode()
    except UnicodeDecodeError:
        return None


def _place(key: ResourceKey) -> str:
    return f"{key.kind}/{key.namespace}/{key.name}"
