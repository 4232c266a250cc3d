"""Secret managers: `env` and `file` of this machine; `gcp` and `azure` over HTTP with an access token.

A further manager is one function and its line in `MANAGERS`.
"""

import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.kernel.secrets.credentials import ResolvedSecret, for_http
from perdure.kernel.secrets.sealed_arguments import EntryFields, EnvelopeError
from perdure.services.playbook.keychain.credential_requests import request_credential
from perdure.services.playbook.keychain.host import HostSecrets, missing

GCP = "https://secretmanager.googleapis.com"
AZURE_API = "7.4"


@dataclass(frozen=True, slots=True)
class ManagerRequest:
    """One secret of a manager."""

    entry: str
    name: str
    fields: EntryFields
    host: HostSecrets

    def field(self, field: str, default: str = "") -> str:
        return str(self.fields.values.get(field) or default)

    def token(self, manager: str) -> str:
        auth = self.fields.values.get("auth")
        credential = for_http("bearer", auth) if auth is not None else None
        if credential is None or credential["type"] != "bearer":
            raise missing(
                f"{self.entry}: {manager} needs an access token; name in `auth` a keychain entry or stored credential"
                " that has one",
                "AUTH_MISSING",
            )
        return str(credential["token"])


async def _env(request: ManagerRequest) -> str:
    return request.host.variable(request.name)


async def _file(request: ManagerRequest) -> str:
    return request.host.file(request.name)


async def _gcp(request: ManagerRequest) -> str:
    path = request.name.strip("/")
    if not path.startswith("projects/"):
        project = request.field("project") or request.host.variables.get("GOOGLE_CLOUD_PROJECT", "")
        if not project:
            raise missing(f"{request.entry}: set the `project` of {path!r}, or write projects/…/secrets/{path}")
        path = f"projects/{project}/secrets/{path}"
    if "/versions/" not in path:
        path += f"/versions/{request.field('version', 'latest')}"
    answer = await request_credential(
        request.entry, f"{request.field('endpoint', GCP)}/v1/{path}:access", token=request.token("gcp")
    )
    try:
        return base64.b64decode(answer["payload"]["data"]).decode()
    except (KeyError, TypeError, ValueError):
        raise missing(f"{request.entry}: the answer for {path!r} has no payload.data of text") from None


async def _azure(request: ManagerRequest) -> str:
    url = request.name
    if "://" not in url:
        vault = request.field("vault") or request.field("endpoint")
        if not vault:
            raise missing(f"{request.entry}: set the `vault` of {url!r}: https://NAME.vault.azure.net")
        base = vault if "://" in vault else f"https://{vault}.vault.azure.net"
        url = "/".join(filter(None, (base.rstrip("/"), "secrets", request.name, request.field("version"))))
    answer = await request_credential(
        request.entry, url, params={"api-version": AZURE_API}, token=request.token("azure")
    )
    if not isinstance(answer, Mapping) or not isinstance(answer.get("value"), str):
        raise missing(f"{request.entry}: the answer for {request.name!r} has no value")
    return str(answer["value"])


async def _aws(request: ManagerRequest) -> str:
    message = (
        f"{request.entry}: AWS Secrets Manager needs signed requests, which are not built in; let the host fetch the"
        " secret into a file or variable and use provider `file` or `env`"
    )
    raise EnvelopeError("auth", message, "SECRET_MANAGER_MISSING")


MANAGERS: Mapping[str, Callable[[ManagerRequest], Awaitable[str]]] = {
    "env": _env,
    "file": _file,
    "gcp": _gcp,
    "azure": _azure,
    "aws": _aws,
}


async def secret_manager(name: str, fields: EntryFields, host: HostSecrets) -> ResolvedSecret:
    """`map`: member → the secret's name there. Without a map the secret named like the entry is read, as `value`."""
    secrets = fields.values.get("map") or {"value": name}
    if not isinstance(secrets, Mapping):
        raise EnvelopeError("auth", f"{name}: `map` must be a map of names to secrets")
    return ResolvedSecret(
        {str(member): await _read(name, secret, fields, host) for member, secret in secrets.items()}, all_secret=True
    )


async def secrets(name: str, fields: EntryFields, host: HostSecrets) -> ResolvedSecret:
    """The tool: a map as above, or one secret, whose value is the text itself."""
    if fields.values.get("map") is not None:
        return await secret_manager(name, fields, host)
    names = (fields.values.get(field) for field in ("key", "secret_name", "path", "name"))
    secret = next((name for name in names if name), None)
    return ResolvedSecret(await _read(name, secret, fields, host), all_secret=True)


async def _read(entry: str, secret: Any, fields: EntryFields, host: HostSecrets) -> str:
    if not isinstance(secret, str) or not secret:
        raise EnvelopeError("auth", f"{entry}: the name of a secret must be a text, not {type(secret).__name__}")
    manager = str(fields.values.get("provider") or "env")
    manager_function = MANAGERS.get(manager)
    if manager_function is None:
        raise EnvelopeError("auth", f"{entry}: there is no secret manager {manager!r}; there are {', '.join(MANAGERS)}")
    return await manager_function(ManagerRequest(entry, secret, fields, host))
