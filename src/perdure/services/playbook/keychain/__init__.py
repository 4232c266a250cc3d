"""How the values of a Playbook's keychain are resolved: one module per family of kinds.

A new kind is one function (from an entry's fields to its value) and its line in `KINDS`. The modules are imported when
the first entry of a kind is resolved: an HTTP client is expensive to import.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from importlib import import_module

from perdure.kernel.credentials import ResolvedSecret
from perdure.kernel.sealed_arguments import EntryFields, EnvelopeError
from perdure.services.playbook.keychain.host import HostSecrets

__all__ = ["KINDS", "HostKeychain", "HostSecrets"]

Resolve = Callable[[str, EntryFields, HostSecrets], Awaitable[ResolvedSecret]]

KINDS: Mapping[str, str] = {
    "secret_manager": "managers:secret_manager",
    "secrets": "managers:secrets",
    "oauth2": "tokens:oauth2",
    "http": "tokens:http",
    "bearer": "stored_credentials:bearer",
    "basic": "stored_credentials:basic",
    "api_key": "stored_credentials:api_key",
    "postgres_credential": "stored_credentials:connection",
    "credential_ref": "stored_credentials:reference",
}


class HostKeychain:
    """Resolves keychain entries on this machine. Workers know it as `KeychainSource`."""

    def __init__(self, host: HostSecrets) -> None:
        self._host = host

    async def resolve(self, kind: str, name: str, fields: EntryFields) -> ResolvedSecret:
        """A new value for an entry. Raises `EnvelopeError`."""
        target = KINDS.get(kind)
        if target is None:
            raise EnvelopeError("auth", f"{name}: there is no kind of secret {kind!r}")
        module, _, function = target.partition(":")
        resolve: Resolve = getattr(import_module(f"{__name__}.{module}"), function)
        return await resolve(name, fields, self._host)

    def credential(self, name: str) -> ResolvedSecret | None:
        """The credential that is stored under this name on the machine."""
        value = self._host.credential(name)
        return None if value is None else ResolvedSecret(value, kind=str(value.get("type") or ""))

    def secret_texts(self, name: str) -> Iterator[str]:
        """The texts to mask for a name as a program lists it: `env:NAME`, `file:NAME` or `credential:NAME`."""
        kind, _, rest = name.partition(":")
        try:
            match kind:
                case "env":
                    yield self._host.variable(rest)
                case "file":
                    yield self._host.file(rest)
                case "credential" if (credential := self.credential(rest)) is not None:
                    yield from credential.secrets()
        except EnvelopeError:  # then no task of the run can read it either
            return
