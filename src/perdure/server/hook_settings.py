"""`[[hooks]]` of the settings file: where ends of runs are sent, of which runs, and how they are signed."""

import base64
import hashlib
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit, urlunsplit

import msgspec

from perdure.kernel.json_values.values import SECOND, Instant
from perdure.stores.protocol import RunFilter
from perdure.views.errors import BadRequest
from perdure.views.runs.run_pages import read_label, read_statuses

if TYPE_CHECKING:
    import ssl

    import httpx

    from perdure.engine.client import Client
    from perdure.stores.hook_deliveries import DeliveryRow


class HookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[hooks]]` of the settings file: where ends of runs are sent, and of which runs."""

    url: str
    id: str = ""  # how it is called in lists; else its address and filter say so
    secret: str = ""
    secret_file: str = ""
    secret_env: str = ""
    status: str | list[str] = []
    name: str | None = None  # of what the run executes
    language: str | None = None
    namespace: str | list[str] = []
    label: str | list[str] = []
    timeout: Annotated[float, msgspec.Meta(gt=0, le=300)] = 10.0  # seconds
    give_up: Annotated[float, msgspec.Meta(ge=0)] = 259_200.0  # seconds after which a delivery is dead


class Hook(msgspec.Struct, frozen=True):
    """A hook that can be used."""

    name: str
    url: str
    key: bytes
    filter: RunFilter
    timeout: float
    give_up: Instant
    send: "Callable[[Client, httpx.AsyncClient, DeliveryRow], Awaitable[tuple[int | None, str]]] | None" = None
    """How a delivery is sent, if not as an event: the status of the answer, and what went wrong."""
    certificates: "ssl.SSLContext | None" = None  # whom TLS trusts; None: the usual authorities

    @property
    def address(self) -> str:
        return _public(self.url)


def read_hook(settings: HookSettings) -> Hook:
    parts = urlsplit(settings.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadRequest(f"[[hooks]] url {_public(settings.url)!r} is not an address (expected http:// or https://)")
    address = _public(settings.url)
    statuses = read_statuses(_listed(settings.status))
    if any(not status.is_final for status in statuses):
        raise BadRequest(f"[[hooks]] {address}: a hook tells of ends; {settings.status!r} names a status of open runs")
    filter = RunFilter(
        statuses=statuses,
        name=settings.name,
        language=settings.language,
        labels=dict(map(read_label, _listed(settings.label))),
        namespaces=_listed(settings.namespace) or None,
    )
    mark = hashlib.sha256(settings.url.encode() + msgspec.json.encode(filter, order="sorted")).hexdigest()[:8]
    name = settings.id or f"{parts.hostname}-{mark}"
    if "/" in name or not name.isprintable():
        raise BadRequest(f"[[hooks]] id {name!r} must be printable, without a slash")
    return Hook(name, settings.url, _key(settings, address), filter, settings.timeout, int(settings.give_up * SECOND))


def read_hooks(settings: Sequence[HookSettings]) -> list[Hook]:
    hooks = [read_hook(table) for table in settings]
    names = [hook.name for hook in hooks]
    for name in names:
        if names.count(name) > 1:
            raise BadRequest(f"[[hooks]]: {name!r} appears twice", hint="Give each an `id` of its own.")
    return hooks


def _key(settings: HookSettings, address: str) -> bytes:
    """The secret as Standard Webhooks has it: base64, perhaps behind `whsec_`; any other text counts as it is."""
    sources = [source for source in (settings.secret, settings.secret_file, settings.secret_env) if source]
    if len(sources) != 1:
        raise BadRequest(
            f"[[hooks]] {address} needs one of `secret`, `secret_file` and `secret_env`",
            hint="Events are signed: the receiver checks them with the same secret.",
        )
    if settings.secret_env:
        secret = os.environ.get(settings.secret_env, "")
    elif settings.secret_file:
        try:
            secret = Path(settings.secret_file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise BadRequest(f"[[hooks]] {address}: {settings.secret_file} cannot be read") from None
    else:
        secret = settings.secret
    if not secret:
        raise BadRequest(f"[[hooks]] {address}: the secret is empty")
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True) or secret.encode()
    except ValueError:
        return secret.encode()


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _public(url: str) -> str:
    """The address as it may be shown: credentials are often in the user, the query or the fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
