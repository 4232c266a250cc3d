"""Credentials of a store: encrypted with the operator's key or kept as references, by namespace (SRV-077)."""

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from perdure.engine.resources.catalog import ResourceNotFound
from perdure.engine.secrets.kept_credentials import CredentialFacts, KeptCredentials
from perdure.engine.secrets.secret_encryption import SecretKeys, SecretsKeyMissing, SecretsKeyUnusable, read_keys
from perdure.kernel.errors import Conflict
from perdure.kernel.secrets.credentials import is_reference
from perdure.stores.protocol import Store
from perdure.testing import World

OLD, NEW = b"o" * 32, b"n" * 32
PLACE = "Credential/default/db"
PLANTED = "hunter2-planted"


def test_a_value_is_read_with_its_key_at_its_place_and_nowhere_else() -> None:
    keys = SecretKeys([OLD])
    text = keys.encrypt(b"value", PLACE)
    assert text != keys.encrypt(b"value", PLACE), "each has a nonce of its own"
    assert SecretKeys([NEW, OLD]).decrypt(text, PLACE) == b"value"
    assert keys.is_current(text) and not SecretKeys([NEW, OLD]).is_current(text)
    with pytest.raises(SecretsKeyUnusable, match="changed or moved"):
        keys.decrypt(text, "Credential/default/other")
    with pytest.raises(SecretsKeyUnusable, match="not among"):
        SecretKeys([NEW]).decrypt(text, PLACE)
    changed = text[:-8] + ("AAAA" if text[-8:-4] != "AAAA" else "BBBB") + text[-4:]
    with pytest.raises(SecretsKeyUnusable, match="changed or moved"):
        keys.decrypt(changed, PLACE)
    with pytest.raises(SecretsKeyMissing):
        SecretKeys().encrypt(b"value", PLACE)


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        (base64.b64encode(OLD) + b"\n", 0o600, ""),
        (base64.urlsafe_b64encode(b"\xff" * 32), 0o640, ""),
        (base64.b64encode(OLD), 0o644, "other users"),
        (base64.b64encode(OLD[:16]), 0o600, "32 bytes"),
        (b"not base64!", 0o600, "32 bytes"),
        (None, 0o600, "cannot be read"),
    ],
)
def test_a_key_file_holds_32_bytes_that_not_everybody_may_read(
    tmp_path: Path, text: bytes | None, mode: int, problem: str
) -> None:
    file = tmp_path / "key"
    if text is not None:
        file.write_bytes(text)
        file.chmod(mode)
    if not problem:
        assert read_keys([str(file)]).first
        return
    with pytest.raises(SecretsKeyUnusable, match=problem):
        read_keys([str(file)])


@pytest.mark.parametrize("text", ["env:TOKEN", "file:db/password"])
def test_references_name_secrets_of_the_host(text: str) -> None:
    assert is_reference(text)
    assert not any(map(is_reference, ("environment", "env:", "https://x", f"x{text}")))


def _store(world: World) -> Store:
    assert world.engine is not None
    return world.engine.store


def _facts(name: str = "db", **more: Any) -> CredentialFacts:
    return CredentialFacts(name, "postgres", **more)


async def test_a_namespace_keeps_only_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.engine.secrets.kept_credentials.MOST_KEPT", 2)
    async with World(tmp_path) as world:
        kept = KeptCredentials(_store(world), SecretKeys([OLD]))
        for name in ("a", "b", "a"):
            await kept.put("default", _facts(name), {"password": PLANTED})
        with pytest.raises(Conflict, match="at most 2"):
            await kept.put("default", _facts("c"), {"password": PLANTED})
        await kept.put("other", _facts("c"), {"password": PLANTED})


@pytest.mark.every_store
async def test_credentials_are_kept_listed_changed_and_removed(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        store = _store(world)
        kept = KeptCredentials(store, SecretKeys([OLD]))
        data = {"host": "db", "password": PLANTED}
        first = await kept.put("default", _facts(tags=["a"]), data)
        assert first.facts.members == ["host", "password"] and PLANTED not in repr(first)
        assert await kept.value("default", "db") == {"type": "postgres", **data}
        assert await kept.value("other", "db") is None
        changed = await kept.put("default", _facts(), {"password": "second"})
        assert changed.id == first.id and [credential.id for credential in await kept.list("default")] == [first.id]
        assert (await kept.get("default", first.id)).facts.name == "db"
        rows = await store.list_resources("Credential")
        editions = [await store.edition(rows[0].key, number) for number in range(1, rows[0].generation + 1)]
        written = b"".join([rows[0].body, rows[0].status or b"", *(edition.body for edition in editions if edition)])
        assert None not in editions
        assert PLANTED.encode() not in written and b"second" not in written

        keys = SecretKeys([NEW, OLD])
        assert await KeptCredentials(store, keys).rekey() == (1, 1)
        assert await KeptCredentials(store, keys).rekey() == (0, 1)
        renewed = KeptCredentials(store, SecretKeys([NEW]))
        assert await renewed.value("default", "db") == {"type": "postgres", "password": "second"}
        with pytest.raises(SecretsKeyUnusable):
            await kept.value("default", "db")
        await renewed.refresh()
        assert renewed.known_value("default", "db") is not None and renewed.known_value("other", "db") is None
        await renewed.delete("default", "db")
        assert renewed.known_value("default", "db") is None
        with pytest.raises(ResourceNotFound):
            await renewed.get("default", "db")


async def test_without_a_key_only_references_are_kept(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        kept = KeptCredentials(_store(world), SecretKeys())
        with pytest.raises(SecretsKeyMissing):
            await kept.put("default", _facts(), {"host": "db", "password": PLANTED})
        assert await kept.list("default") == []
        references = {"host": "db", "port": 5432, "password": "env:DB_PASSWORD"}
        await kept.put("default", _facts(), references)
        assert await kept.value("default", "db") == {"type": "postgres", **references}
        assert await KeptCredentials(_store(world), SecretKeys([os.urandom(32)])).rekey() == (1, 1)
