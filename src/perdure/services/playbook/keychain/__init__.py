"""How the values of a Playbook's keychain are resolved: one module per family of kinds.

A new kind is one function (from an entry's fields to its value) and its line in `KINDS`. The modules are imported when
the first entry of a kind is resolved: an HTTP client is expensive to import.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any, Protocol

from perdure.kernel.errors import PerdureError
from perdure.kernel.secrets.credentials import REFERENCES, ResolvedSecret, SecretsOfTask, first
from perdure.kernel.secrets.sealed_arguments import EntryFields, EnvelopeError
from perdure.kernel.tasks.assignments import Assignment
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
    "static": "stored_credentials:static",
}


class KeptSecretSource(Protocol):
    """Secrets and ConfigMaps that a store keeps, as `KeptSecrets` has them."""

    async def see(self, namespace: str, names: Iterable[str]) -> SecretsOfTask: ...


class KeptCredentialSource(Protocol):
    """Credentials that a store keeps: those of the process, or those that a server sends for one task."""

    @property
    def secrets(self) -> KeptSecretSource: ...
    async def value(self, namespace: str, name: str) -> dict[str, Any] | None: ...
    def known_value(self, namespace: str, name: str) -> dict[str, Any] | None: ...


SentFor = Callable[[Assignment], KeptCredentialSource | None]
"""What a server elsewhere sends for one task; None: nothing."""


class HostKeychain:
    """Resolves keychain entries on this machine. Workers know it as `KeychainSource`."""

    is_for_one_task = False

    def __init__(
        self,
        host: HostSecrets,
        kept: Callable[[], KeptCredentialSource] | None = None,
        sent: SentFor | None = None,
    ) -> None:
        """`kept`: credentials of the store, opened when first needed; they count before those of the machine. `sent`:
        the same of a server elsewhere, which it sends for one task.
        """
        self._host = host
        self._kept = kept
        self._sent = sent

    def for_task(self, assignment: Assignment) -> "HostKeychain":
        source = None if self._sent is None else self._sent(assignment)
        if source is None:
            return self
        own = HostKeychain(self._host, lambda: source)
        own.is_for_one_task = True
        return own

    async def resolve(self, kind: str, name: str, fields: EntryFields, namespace: str) -> ResolvedSecret:
        """A new value for an entry. Raises `EnvelopeError`."""
        target = KINDS.get(kind)
        if target is None:
            raise EnvelopeError("auth", f"{name}: there is no kind of secret {kind!r}")
        module, _, function = target.partition(":")
        resolve: Resolve = getattr(import_module(f"{__name__}.{module}"), function)
        reference = first(fields.values, REFERENCES) or name
        value = await self._kept_value(namespace, reference)
        host = self._host if value is None else replace(self._host, kept={reference: value})
        return await resolve(name, fields, host)

    async def credential(self, name: str, namespace: str) -> ResolvedSecret | None:
        """The credential that is stored under this name in the namespace, or on the machine."""
        value = await self._kept_value(namespace, name)
        return _resolved(self._host.credential(name) if value is None else value)

    async def _kept_value(self, namespace: str, name: str) -> dict[str, Any] | None:
        from perdure.engine.secrets.secret_encryption import SecretsKeyUnusable

        try:
            value = None if self._kept is None else await self._kept().value(namespace, name)
        except SecretsKeyUnusable as error:
            raise EnvelopeError("auth", str(error), "SECRET_MISSING") from None
        return None if value is None else self._host.dereference(value)

    # Secrets and ConfigMaps of the catalog.

    async def see(self, names: Iterable[str], namespace: str) -> SecretsOfTask | None:
        """The present values of these `name/key`, for one task."""
        return None if self._kept is None else await self._kept().secrets.see(namespace, names)

    def secret_texts(self, name: str, namespace: str) -> Iterator[str]:
        """The texts to mask for a name as a program lists it: `env:NAME`, `file:NAME`, `credential:NAME`."""
        kind, _, rest = name.partition(":")
        try:
            match kind:
                case "env":
                    yield self._host.variable(rest)
                case "file":
                    yield self._host.file(rest)
                case "credential":
                    kept = None if self._kept is None else self._kept().known_value(namespace, rest)
                    values = (self._host.credential(rest), None if kept is None else self._host.dereference(kept))
                    for credential in filter(None, map(_resolved, values)):
                        yield from credential.secrets()
        except (EnvelopeError, PerdureError):  # then no task of the run can read it either
            return


def _resolved(value: dict[str, Any] | None) -> ResolvedSecret | None:
    return None if value is None else ResolvedSecret(value, kind=str(value.get("type") or ""))
