"""Texts outside of a document: a script in a file, at an address, or in a bucket of an S3 service.

A file's name is relative to `folder`, and must not lead out of it, by `..` or by a link. That is the folder of the
document, which is set when a run is started, never by a document; otherwise `policy.script_folders`. The operator may
set one for all tasks of a worker with `PERDURE_SCRIPTS_DIR`; then nothing else is read. The buckets are those that the
operator names in `PERDURE_SCRIPTS_S3`.

Blocking: call it from a separate thread or process.
"""

import base64
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote, urlsplit

import msgspec

from perdure.providers import function
from perdure.providers.failure import ProviderFailure
from perdure.providers.policy import of_api_document, policy_in_force

if TYPE_CHECKING:
    from perdure.providers import object_storage

PREFIX = "Provider.Call.ScriptSource"
ROOT = "PERDURE_SCRIPTS_DIR"
SETTING = "policy.script_folders"
BUCKETS = "PERDURE_SCRIPTS_S3"
LARGEST = 16 * 1024 * 1024  # bytes


UNSAID = msgspec.Meta(extra_json_schema={function.ENGINE_ONLY: True})


class TextSource(msgspec.Struct, forbid_unknown_fields=True):
    """How to get it. `type` is derived from the address by default; `region` is for s3, the rest is for http."""

    type: str | None = None
    endpoint: str | None = None
    method: str = "GET"
    headers: dict[str, str] = {}
    timeout: float = 30.0
    auth: Any = None
    region: str | None = None


class Script(msgspec.Struct, forbid_unknown_fields=True):
    """Where a text is; with `sha256` any other text is refused."""

    uri: str
    source: TextSource = msgspec.field(default_factory=TextSource)
    sha256: str | None = None
    folder: Annotated[str | None, UNSAID] = None

    @property
    def name(self) -> str:
        """The last part of its address."""
        return urlsplit(self.uri).path.rpartition("/")[2] or "script"


def read_text(script: Script | str) -> str:
    """The text; a script that is not a descriptor is the text itself."""
    if isinstance(script, str):
        return script
    try:
        return read_bytes(script).decode()
    except UnicodeDecodeError as problem:
        raise _failure("Unreadable", script, f"it is not text in UTF-8: {problem}") from None


def read_bytes(script: Script) -> bytes:
    match script.source.type or _type_of(script.uri):
        case "file":
            data = _from_file(script)
        case "http" | "https":
            data = _from_http(script)
        case "s3":
            data = _from_bucket(script)
        case other:
            raise _failure("UnknownSource", script, f"there is no source of type {other!r}; use file, http or s3")
    if script.sha256 is not None and hashlib.sha256(data).hexdigest() != script.sha256.lower():
        raise _failure("WrongDigest", script, "its content does not match `sha256`")
    return data


def _type_of(uri: str) -> str:
    scheme = urlsplit(uri).scheme
    return scheme if scheme and len(scheme) > 1 else "file"


def _from_file(script: Script) -> bytes:
    address = urlsplit(script.uri)
    name = unquote(address.path) if address.scheme == "file" else script.uri
    folders = [Path(folder).resolve() for folder in _folders(script)]
    if not folders:
        raise _failure("Forbidden", script, f"no folder is open for scripts ({SETTING}, or {ROOT}, names one)")
    folder = folders[0]
    try:
        path = (folder / name).resolve()
        if not any(path.is_relative_to(folder) for folder in folders):
            problem = f"it is outside of {folder}; move it there, or set {ROOT} to a folder that holds all scripts"
            raise _failure("Forbidden", script, problem)
        if path.stat().st_size > LARGEST:
            raise _failure("TooLarge", script, f"it has more than {LARGEST} bytes")
        return path.read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise _failure("NotFound", script, f"there is no such file in {folder}") from None
    except (OSError, ValueError) as problem:
        raise _failure("Unreadable", script, str(problem)) from None


def _folders(script: Script) -> list[str]:
    """Where files may be; a relative name is resolved in the first one. No document of the API opens a folder."""
    if fixed := os.environ.get(ROOT) or (None if of_api_document.get() else script.folder):
        return [fixed]
    opened = policy_in_force().script_folders
    return ["."] if opened is None else opened


def _from_http(script: Script) -> bytes:
    import asyncio

    from perdure.providers import http_client
    from perdure.providers.http import download

    source = script.source
    url = f"{source.endpoint.rstrip('/')}/{script.uri.lstrip('/')}" if source.endpoint else script.uri

    async def fetch() -> bytes:
        try:
            return await download(url, source.method, source.headers | _credentials(script), source.timeout, LARGEST)
        finally:
            await http_client.close_clients()

    try:
        return asyncio.run(fetch())
    except ProviderFailure as failure:
        status = failure.details.get("status") if isinstance(failure.details, dict) else None
        code = failure.code.rpartition(".")[2]
        if isinstance(status, int) and code.startswith("Status"):
            raise _answered(script, status) from None
        raise _failure(_AS_SOURCE.get(code, code), script, failure.message, retryable=bool(failure.retryable)) from None


_AS_SOURCE = {"ProtocolError": "ConnectionFailed", "TlsFailed": "ConnectionFailed", "BadRequest": "BadUrl"}


def _from_bucket(script: Script) -> bytes:
    from perdure.providers import object_storage

    if not script.uri.startswith(object_storage.SCHEME):
        raise _failure("BadUrl", script, "an object of a bucket is named s3://BUCKET/KEY")
    try:
        return object_storage.read_object(BUCKETS, script.uri, _keys(script), LARGEST)
    except object_storage.ObjectStorageFailed as failure:
        if failure.status == 413:
            raise _failure("TooLarge", script, str(failure)) from None
        if failure.status == 415:
            raise _failure("Unreadable", script, str(failure)) from None
        if failure.status is not None:
            raise _answered(script, failure.status) from None
        code = "ConnectionFailed" if failure.is_passing else "Forbidden"
        raise _failure(code, script, str(failure), retryable=failure.is_passing) from None


def _keys(script: Script) -> "object_storage.AccessKeys | None":
    """The keys of an `auth`; without one those of the process."""
    from perdure.providers.object_storage import AccessKeys

    region = script.source.region or ""
    match script.source.auth:
        case None:
            return None
        case {"access_key_id": str(name), "secret_access_key": str(key), **rest}:
            return AccessKeys(name, key, str(rest.get("session_token") or ""), region or str(rest.get("region") or ""))
    raise _failure("Denied", script, "its `auth` lacks access_key_id and secret_access_key")


def _credentials(script: Script) -> dict[str, str]:
    """The header for an `auth`: a token, or a name and a password."""
    match script.source.auth:
        case None:
            return {}
        case {"token": str(token)}:
            return {"authorization": f"Bearer {token}"}
        case {"username": str(name), "password": str(password)}:
            pair = base64.b64encode(f"{name}:{password}".encode()).decode()
            return {"authorization": f"Basic {pair}"}
    raise _failure("Denied", script, "its `auth` has neither a token nor a username with a password")


def _answered(script: Script, status: int) -> ProviderFailure:
    code = {401: "Denied", 403: "Denied", 404: "NotFound", 410: "NotFound", 429: "Busy"}.get(status)
    code = code or ("ServerError" if status >= 500 else "Refused")
    is_passing = status in (408, 425, 429) or status >= 500
    return _failure(code, script, f"the server answered {status}", retryable=is_passing, status=status)


def _failure(code: str, script: Script, problem: str, *, retryable: bool = False, **facts: Any) -> ProviderFailure:
    uri = urlsplit(script.uri)
    address = script.uri if not uri.query and "@" not in uri.netloc else f"{uri.scheme}://{uri.hostname}{uri.path}"
    message = f"the script {address} cannot be loaded: {problem}"
    return ProviderFailure(f"{PREFIX}.{code}", message, retryable, {"uri": address, **facts})
