"""Tokens that a server gives: `oauth2`, and any other answer over `http`."""

from collections.abc import Mapping
from typing import Any

from perdure.kernel.secrets.credentials import ResolvedSecret, for_http
from perdure.kernel.secrets.sealed_arguments import EntryFields, EnvelopeError
from perdure.services.playbook.keychain.credential_requests import request_credential
from perdure.services.playbook.keychain.host import HostSecrets


async def oauth2(name: str, fields: EntryFields, host: HostSecrets) -> ResolvedSecret:
    """The whole answer, with the token also as `access_token`, whatever the server calls it."""
    answer = await _request_token(name, fields, "POST", as_form=True)
    field = str(fields.values.get("token_field") or "access_token")
    token = _member(answer, field)
    if not isinstance(token, str) or not token:
        raise EnvelopeError("auth", f"{name}: the answer has no text {field!r}")
    return ResolvedSecret({**answer, "access_token": token}, _lifetime(answer, fields))


async def http(name: str, fields: EntryFields, host: HostSecrets) -> ResolvedSecret:
    """The answer's body; if it is not a map, it becomes the member `value`."""
    answer = await _request_token(name, fields, "GET", as_form=False)
    value = dict(answer) if isinstance(answer, Mapping) else {"value": answer}
    field = fields.values.get("token_field")
    if field is not None:
        token = _member(value, str(field))
        if not isinstance(token, str) or not token:
            raise EnvelopeError("auth", f"{name}: the answer has no text {field!r}")
        value["access_token"] = token
    return ResolvedSecret(value, _lifetime(value, fields))


async def _request_token(name: str, fields: EntryFields, method: str, *, as_form: bool) -> Any:
    values = fields.values
    url = values.get("endpoint") or values.get("url")
    if not isinstance(url, str) or not url:
        raise EnvelopeError("auth", f"{name}: `endpoint` must be a text")
    contents = (values.get(field) for field in ("data", "body", "payload"))
    data = next((content for content in contents if content is not None), None)
    auth = values.get("auth")
    return await request_credential(
        name,
        url,
        str(values.get("method") or method),
        headers=values.get("headers"),
        params=values.get("params"),
        data=data,
        as_form=as_form,
        auth=None if auth is None else for_http("", auth),
    )


def _lifetime(answer: Any, fields: EntryFields) -> float | None:
    lifetime = _member(answer, str(fields.values.get("ttl_field") or "expires_in"))
    if isinstance(lifetime, str):
        lifetime = float(lifetime) if lifetime.replace(".", "", 1).isdigit() else None
    is_number = isinstance(lifetime, int | float) and not isinstance(lifetime, bool)
    return float(lifetime) if is_number and lifetime >= 0 else None


def _member(value: Any, path: str) -> Any:
    """A member, or a dotted path to one."""
    if isinstance(value, Mapping) and path in value:
        return value[path]
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return None
        value = value[name]
    return value
