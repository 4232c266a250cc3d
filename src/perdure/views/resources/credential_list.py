"""Credentials that a store keeps, with the operator's keys, and as JSON: never with a value."""

import os
from typing import Any

from perdure.engine.secrets.kept_credentials import KeptCredential, KeptCredentials
from perdure.engine.secrets.secret_encryption import read_keys
from perdure.providers.policy import read_key_files
from perdure.stores.protocol import Store
from perdure.views.times import iso


def open_credentials(store: Store) -> KeptCredentials:
    """The credentials of a store; a key file that cannot be used is refused here."""
    return KeptCredentials(store, read_keys(read_key_files(os.environ)))


def credential_json(credential: KeptCredential) -> dict[str, Any]:
    facts = credential.facts
    return {
        "id": credential.id,
        "name": facts.name,
        "type": facts.type,
        "keys": facts.members,
        "meta": facts.meta,
        "tags": facts.tags,
        "description": facts.description,
        "created_at": iso(credential.created_at),
        "updated_at": iso(credential.updated_at),
    }


def credential_entry_json(credential: KeptCredential) -> dict[str, Any]:
    """As an entry of a catalog."""
    facts = credential.facts
    return {
        "catalog_id": credential.id,
        "path": facts.name,
        "version": 1,
        "kind": "Credential",
        "payload": None,
        "meta": {"type": facts.type, "tags": facts.tags},
        "layout": None,
        "created_at": iso(credential.created_at),
    }
