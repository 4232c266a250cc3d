"""Secrets and ConfigMaps of the catalog that tasks ask for: a process keeps those that were seen last."""

from typing import Any

import pytest

from perdure.engine.secrets import kept_secrets
from perdure.engine.secrets.kept_secrets import KeptSecrets
from perdure.engine.secrets.secret_encryption import SecretKeys
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.json_values import jsontext
from perdure.stores.protocol import ResourceRow


class _Catalog:
    """ConfigMaps `m0`, `m1` … of 1,000 bytes; counts how many were read."""

    def __init__(self) -> None:
        self.read = 0
        self.value = "old"
        self.gone: set[str] = set()

    async def resources(self, keys: list[ResourceKey]) -> dict[ResourceKey, ResourceRow]:
        self.read += len(keys)
        body = jsontext.encode({"data": {"a": self.value}, "filler": "x" * 1_000})
        rows = [ResourceRow(key, "u", 1, 1, body, b"", {}, None, 0, 0) for key in keys if key.name not in self.gone]
        return {row.key: row for row in rows}


@pytest.fixture
def catalog() -> _Catalog:
    return _Catalog()


async def _seen(catalog: Any, *names: str) -> KeptSecrets:
    kept = KeptSecrets(catalog, SecretKeys([]))
    for name in names:
        await kept.see("ns", [f"config:{name}/a"])
    return kept


async def test_only_what_tasks_asked_for_is_read_again(catalog: _Catalog) -> None:
    kept = await _seen(catalog, "m0", "m1", "m2")
    catalog.read, catalog.value = 0, "new"
    catalog.gone.add("m1")
    await kept.look()
    assert catalog.read == 3
    assert [kept.config("ns", name, "a") for name in ("m0", "m1", "m2", "m3")] == ["new", None, "new", None]


async def test_what_was_seen_long_ago_makes_room(catalog: _Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the task that begins has asked for is always there."""
    monkeypatch.setattr(kept_secrets, "MOST_BYTES", 5_000)
    kept = await _seen(catalog, *(f"m{number}" for number in range(10)))
    assert [kept.config("ns", f"m{number}", "a") for number in range(10)] == [None] * 7 + ["old"] * 3
    await kept.see("ns", [f"config:m{number}/a" for number in range(8)])
    assert all(kept.config("ns", f"m{number}", "a") for number in range(8))
