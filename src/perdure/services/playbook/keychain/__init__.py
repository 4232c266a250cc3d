"""How secrets are made: one module per family of kinds, each a function from an entry's fields to a value.

A further kind is one function here and its line in `KINDS`.
"""

from collections.abc import Awaitable, Callable, Mapping

from perdure.kernel.sealed_arguments import EntryFields, EnvelopeError
from perdure.services.playbook.keychain import managers, stored_credentials, tokens
from perdure.services.playbook.keychain.host import Host
from perdure.services.playbook.keychain.resolved import Resolved

__all__ = ["KINDS", "Host", "Resolved", "resolve"]

KINDS: Mapping[str, Callable[[str, EntryFields, Host], Awaitable[Resolved]]] = {
    "secret_manager": managers.secret_manager,
    "secrets": managers.secrets,
    "oauth2": tokens.oauth2,
    "http": tokens.http,
    "bearer": stored_credentials.bearer,
    "basic": stored_credentials.basic,
    "api_key": stored_credentials.api_key,
    "postgres_credential": stored_credentials.connection,
    "credential_ref": stored_credentials.reference,
}


async def resolve(kind: str, name: str, fields: EntryFields, host: Host) -> Resolved:
    """The value of an entry, made anew. Raises `EnvelopeError`."""
    make = KINDS.get(kind)
    if make is None:
        raise EnvelopeError("auth", f"{name}: there is no kind of secret {kind!r}")
    return await make(name, fields, host)
