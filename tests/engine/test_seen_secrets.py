"""Secrets and ConfigMaps of the catalog that tasks ask for: each task has those that its document names."""

from collections.abc import Sequence
from typing import Any

import pytest

from perdure.engine.secrets import kept_secrets
from perdure.engine.secrets.kept_secrets import KeptSecrets, SeenSecrets, TooManySecrets
from perdure.engine.secrets.secret_encryption import SecretKeys
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.json_values import jsontext
from perdure.stores.errors import StoreError
from perdure.stores.protocol import ResourceRow


class _Keys(SecretKeys):
    """Counts how often something is decrypted."""

    decrypted = 0

    def decrypt(self, text: str, place: str) -> bytes:
        self.decrypted += 1
        return super().decrypt(text, place)


class _Catalog:
    """ConfigMaps `m0`, `m1` … of 1,000 bytes, and one Secret; counts how many are read at once."""

    def __init__(self) -> None:
        self.version = 1
        self.at_once = 0
        self.is_away = False
        self.gone: set[str] = set()
        self.secret: bytes | None = None

    async def resources(self, keys: Sequence[ResourceKey]) -> dict[ResourceKey, ResourceRow]:
        if self.is_away:
            raise StoreError("away")
        self.at_once = max(self.at_once, len(keys))
        body = jsontext.encode({"data": {"a": f"version {self.version}"}, "filler": "x" * 1_000})
        rows = [
            ResourceRow(key, "u", 1, self.version, body, b"", {}, self.secret, 0, 0)
            for key in keys
            if key.name not in self.gone
        ]
        return {row.key: row for row in rows}


@pytest.fixture
def catalog() -> Any:
    return _Catalog()


async def _see(kept: KeptSecrets, *numbers: int) -> SeenSecrets:
    return await kept.see("ns", [f"config:m{number}/a" for number in numbers])


async def test_a_task_has_what_it_saw_when_it_began(catalog: Any) -> None:
    """Also when others name entries that take all the room there is, and when its own are changed or gone."""
    kept = KeptSecrets(catalog, SecretKeys())
    first = await _see(kept, 0, 1)
    catalog.version += 1
    catalog.gone.add("m1")
    for number in range(2, 200):
        await _see(kept, number)
    later = await _see(kept, 0, 1)
    assert [first.config(f"m{number}", "a") for number in (0, 1, 2)] == ["version 1", "version 1", None]
    assert [later.config(f"m{number}", "a") for number in (0, 1)] == ["version 2", None]


async def test_no_task_takes_what_another_has_seen(catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A document of one namespace that names large Secrets made tasks of another fail: theirs were forgotten."""
    monkeypatch.setattr(kept_secrets, "MOST_BYTES", 5_000)
    kept = KeptSecrets(catalog, SecretKeys())
    first = await _see(kept, 0)
    await _see(kept, 1, 2, 3)
    assert first.config("m0", "a") == "version 1"


async def test_those_that_were_seen_last_count_while_the_store_is_away(
    catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_secrets, "MOST_BYTES", 5_000)
    kept = KeptSecrets(catalog, SecretKeys())
    for number in range(10):
        await _see(kept, number)
    catalog.is_away = True
    seen = await _see(kept, *range(10))
    assert [seen.config(f"m{number}", "a") for number in range(10)] == [None] * 7 + ["version 1"] * 3


async def test_a_document_names_only_so_much(catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is read a few at a time: on a SQLite file nobody else has a turn meanwhile."""
    monkeypatch.setattr(kept_secrets, "MOST_BYTES", 50_000)
    kept = KeptSecrets(catalog, SecretKeys())
    await _see(kept, *range(30))
    assert 0 < catalog.at_once <= kept_secrets.KEYS_AT_ONCE
    with pytest.raises(TooManySecrets):
        await _see(kept, *range(40))


async def test_a_secret_is_decrypted_once_however_many_of_its_keys_are_asked_for(catalog: Any) -> None:
    """A Story that names thousands of keys of one Secret stopped the event loop for a minute."""
    keys = _Keys([bytes(32)])
    kept = KeptSecrets(catalog, keys)
    names = [f"big/key{number}" for number in range(500)]
    values = {f"key{number}": "AAAA" for number in range(500)}
    catalog.secret = kept.status(ResourceKey("Secret", "ns", "big"), values)
    seen, again = [await kept.see("ns", names) for _ in range(2)]
    assert all(seen.secret(name) == again.secret(name) == "\0\0\0" for name in names)
    assert [text for name in names for text in seen.texts(name)] == list(seen.texts("big/*")) == ["\0\0\0"] * 500
    assert keys.decrypted == 1, "tasks that are at work share what they have seen"
