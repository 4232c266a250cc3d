"""Credentials that already exist: written as templates over earlier entries, or stored on the host under a name."""

from collections.abc import Mapping
from typing import Any

from perdure.kernel.secrets.credentials import REFERENCES, ResolvedSecret, first, for_http
from perdure.kernel.secrets.sealed_arguments import EntryFields, EnvelopeError
from perdure.services.playbook.keychain.host import HostSecrets, missing


async def bearer(name: str, fields: EntryFields, host: HostSecrets) -> ResolvedSecret:
    token = first(fields.values, ("token", "access_token", "value"))
    if token is None:
        credential = _http(name, fields, host, "bearer")
        token = str(credential.get("token") or credential.get("value") or "")
    if not token:
        raise missing(f"{name}: there is no token; write `token`, or set PERDURE_SECRET_{name}")
    return ResolvedSecret({"token": token, "access_token": token})


async def basic(name: str, fields: EntryFields, host: HostSecrets) -> ResolvedSecret:
    user, password = first(fields.values, ("username", "user")), fields.values.get("password")
    if user is None or not isinstance(password, str):
        credential = _http(name, fields, host, "basic")
        user, password = credential.get("username"), credential.get("password")
    if not isinstance(user, str) or not isinstance(password, str):
        raise missing(f"{name}: a basic credential needs `username` and `password`")
    return ResolvedSecret({"username": user, "password": password})


async def api_key(name: str, fields: EntryFields, host: HostSecrets) -> ResolvedSecret:
    values = fields.values
    place = {field: values[field] for field in ("header", "in", "param") if values.get(field)}
    key = first(values, ("value", "api_key", "key", "token"))
    if key is None:
        credential = _http(name, fields, host, "api_key")
        key = str(credential.get("value") or credential.get("token") or "")
        if credential.get("type") == "api_key" and not place:
            place = {"header": credential["name"]} if credential["in"] == "header" else {"param": credential["name"]}
    if not key:
        raise missing(f"{name}: there is no key; write `value`, or set PERDURE_SECRET_{name}")
    return ResolvedSecret({"key": key, "api_key": key, "value": key, **place})


async def connection(name: str, fields: EntryFields, host: HostSecrets) -> ResolvedSecret:
    """The members as written, over those of the stored credential that is named, or called like the entry."""
    members = {field: value for field, value in fields.values.items() if field not in (*REFERENCES, "auth")}
    credential = _stored(name, fields, host)
    if credential is None and not members:
        raise _unknown(name, _reference(name, fields))
    return ResolvedSecret({**(credential or {}), **members}, kind="postgres_credential")


async def reference(name: str, fields: EntryFields, host: HostSecrets) -> ResolvedSecret:
    credential = _stored(name, fields, host)
    if credential is None:
        raise _unknown(name, _reference(name, fields))
    return ResolvedSecret(credential, kind=str(credential.get("type") or "credential_ref"))


async def static(name: str, fields: EntryFields, host: HostSecrets) -> ResolvedSecret:
    """Values that the document composes from its workload and from earlier entries."""
    values = fields.values.get("map")
    if not isinstance(values, dict) or not values:
        raise EnvelopeError("auth", f"{name}: a static entry needs `map`, its values by name")
    return ResolvedSecret(values)


def _http(name: str, fields: EntryFields, host: HostSecrets, kind: str) -> Mapping[str, Any]:
    """What the entry leaves to others: a stored credential, or a secret that is called like the entry."""
    credential: Any = _stored(name, fields, host)
    if credential is None:
        credential = host.secret(name)
    return (for_http(kind, credential) if credential is not None else None) or {}


def _stored(name: str, fields: EntryFields, host: HostSecrets) -> dict[str, Any] | None:
    auth = fields.values.get("auth")
    if isinstance(auth, Mapping):
        return dict(auth)
    return host.credential(_reference(name, fields))


def _reference(name: str, fields: EntryFields) -> str:
    return first(fields.values, REFERENCES) or name


def _unknown(name: str, stored: str) -> EnvelopeError:
    hint = f"set PERDURE_CREDENTIAL_{stored}, or put {stored}.json into PERDURE_CREDENTIALS_DIR"
    return missing(f"{name}: there is no stored credential {stored!r}; {hint}", "AUTH_UNKNOWN")
