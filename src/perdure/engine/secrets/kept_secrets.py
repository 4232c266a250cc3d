"""Secrets that a store keeps as entries of the catalog: what they are called is their body, their values are encrypted.

The values are in the status of the entry, of which the catalog keeps no earlier versions: a changed value is gone. Each
text is bound to its entry. Tasks in this process are given the values, and those of ConfigMaps, of their namespace.
"""

import base64
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from weakref import WeakValueDictionary

import msgspec

from perdure.engine.decision_threads import done_aside
from perdure.engine.resources.catalog_changes import retry_on_conflict
from perdure.engine.secrets.secret_encryption import SecretKeys, SecretsKeyUnusable
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.errors import Conflict, PerdureError, UnfitInput
from perdure.kernel.json_values import jsontext
from perdure.stores.protocol import CatalogConflict, ResourceRow, ResourceWrite, Store

SECRET_KIND, CONFIG_MAP_KIND = "Secret", "ConfigMap"
CONFIG = "config:"
"""How names of config maps begin among the names of secrets that a document has."""
MOST_BYTES = 32 << 20  # of the entries that one document names, and of those that were seen last
KEYS_AT_ONCE = 8  # of up to a megabyte, before others have their turn
LOST_RACE = "other processes keep changing the same secret; nothing was stored"


class TooManySecrets(UnfitInput):
    """A document names Secrets and ConfigMaps that are too large together."""

    code = "SECRETS-TOO-LARGE"
    hint = "Name fewer of them in one document, or store large data elsewhere."


class _Encrypted(msgspec.Struct, frozen=True):
    """The status of an entry."""

    encrypted: str


class _Entry:
    """A Secret or a ConfigMap as one version of it says; it is decrypted and read once, for all who have it."""

    def __init__(self, row: ResourceRow) -> None:
        self.version = row.version
        self.size = 500 + len(row.body) + len(row.status or b"")
        self._row: ResourceRow | None = row
        self._texts: dict[str, str | None] = {}
        self._problem: SecretsKeyUnusable | None = None

    def read(self, values: Callable[[ResourceRow], dict[str, str]]) -> None:
        if self._row is None:
            return
        try:
            if self._row.key.kind == SECRET_KIND:
                self._texts = {name: _text(value) for name, value in values(self._row).items()}
            else:
                body = jsontext.decode(self._row.body)
                binary = {name: _text(value) for name, value in (body.get("binaryData") or {}).items()}
                self._texts = binary | (body.get("data") or {})
        except SecretsKeyUnusable as problem:
            self._problem = problem
        self._row = None

    @property
    def texts(self) -> Mapping[str, str | None]:
        """By key. Raises `SecretsKeyUnusable`."""
        if self._problem is not None:
            raise self._problem.with_traceback(None)
        return self._texts


class SeenSecrets:
    """What one task may ask for, as it was when the task began: whatever others ask for, it stays there."""

    def __init__(self, namespace: str, entries: Mapping[ResourceKey, _Entry]) -> None:
        self._namespace = namespace
        self._entries = entries

    def secret(self, name: str) -> str | None:
        """The value of `name/key`. Raises `SecretsKeyUnusable`."""
        return self._texts(SECRET_KIND, _entry_of(name)).get(name.partition("/")[2])

    def config(self, name: str, key: str) -> str | None:
        return self._texts(CONFIG_MAP_KIND, name).get(key)

    def all_keys(self, entry: str) -> dict[str, str]:
        """The values of all keys, by `name/key`. Raises `SecretsKeyUnusable`."""
        texts = self._texts(SECRET_KIND, entry)
        return {f"{entry}/{key}": text for key, text in texts.items() if text is not None}

    def texts(self, name: str) -> Iterator[str]:
        """What must be masked for `name/key`, or for `name/*`; nothing where the values cannot be read."""
        with suppress(SecretsKeyUnusable):
            key, texts = name.partition("/")[2], self._texts(SECRET_KIND, _entry_of(name))
            yield from filter(None, texts.values() if key == "*" else (texts.get(key),))

    def _texts(self, kind: str, name: str) -> Mapping[str, str | None]:
        entry = self._entries.get(ResourceKey(kind, self._namespace, name))
        return {} if entry is None else entry.texts


class KeptSecrets:
    def __init__(self, store: Store, keys: SecretKeys) -> None:
        self._store = store
        self._keys = keys
        self._shared: WeakValueDictionary[ResourceKey, _Entry] = WeakValueDictionary()  # that some task has
        self._latest: OrderedDict[ResourceKey, _Entry] = OrderedDict()  # for as long as the store is away

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

    async def see(self, namespace: str, names: Iterable[str]) -> SeenSecrets:
        """Those that a document names, before a task begins that may ask for them. Raises `TooManySecrets`.

        While the store is away, those count that were seen last.
        """
        named = [name for name in names if "/" in name]
        kinds = {(CONFIG_MAP_KIND if name.startswith(CONFIG) else SECRET_KIND, _entry_of(name)) for name in named}
        keys = [ResourceKey(kind, namespace, name) for kind, name in kinds]
        entries: dict[ResourceKey, _Entry] = {}
        for begin in range(0, len(keys), KEYS_AT_ONCE):
            entries |= await self._see(keys[begin : begin + KEYS_AT_ONCE])
            size = sum(entry.size for entry in entries.values())
            if size > MOST_BYTES:
                raise TooManySecrets(f"the Secrets and ConfigMaps of one document have more than {MOST_BYTES:,} bytes")
            await done_aside(size, partial(self._read, list(entries.values())))
        self._remember(entries)
        return SeenSecrets(namespace, entries)

    async def _see(self, keys: Sequence[ResourceKey]) -> dict[ResourceKey, _Entry]:
        try:
            rows = await self._store.resources(keys)
        except PerdureError:
            return {key: self._latest[key] for key in keys if key in self._latest}
        entries = {}
        for key, row in rows.items():
            known = self._shared.get(key)
            entries[key] = known if known is not None and known.version == row.version else _Entry(row)
        self._shared.update(entries)
        return entries

    def _read(self, entries: Sequence[_Entry]) -> None:
        for entry in entries:
            entry.read(self.values)

    def _remember(self, entries: Mapping[ResourceKey, _Entry]) -> None:
        for key, entry in entries.items():
            self._latest[key] = entry
            self._latest.move_to_end(key)
        size = sum(entry.size for entry in self._latest.values())
        while size > MOST_BYTES:
            size -= self._latest.popitem(last=False)[1].size

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
