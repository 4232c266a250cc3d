"""What the operator allows documents to use: providers, addresses, folders, variables.

    [policy]                                       # the settings file that PERDURE_CONFIG names (TOML)
    code = "deny"                                  # no provider that runs code from a document
    providers = ["http", "echo", "engram:*"]       # only these
    network = "closed"                             # no loopback, private, link-local … addresses
    addresses = ["10.1.0.0/16", "api.internal"]    # … but these
    denied_addresses = ["203.0.113.0/24"]
    sqlite_folders = ["data"]                      # where `sqlite` finds databases; `duckdb`, `script` likewise

    [policy.namespaces.team-a]
    providers = ["http"]

    [keychain]
    env = ["BILLING_*"]
    files = ["/etc/billing/secrets"]

    [secrets]
    key_file = ["/etc/perdure/secrets.key"]        # several for a change of keys: the first one writes

The same can be set in the environment, which takes precedence over the file: `PERDURE_POLICY` holds the members of
`[policy]` as a JSON object; `PERDURE_KEYCHAIN_ENV`, `PERDURE_KEYCHAIN_FILES` and `PERDURE_SECRETS_KEY_FILE` are lists
with commas.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from perdure.kernel.errors import PerdureError
from perdure.kernel.lazy_regex import lazy_regex
from perdure.services import PROVIDERS as LANGUAGE_PROVIDERS

CONFIG = "PERDURE_CONFIG"
POLICY = "PERDURE_POLICY"
KEYCHAIN_ENV = "PERDURE_KEYCHAIN_ENV"
KEYCHAIN_FILES = "PERDURE_KEYCHAIN_FILES"
RETENTION = "PERDURE_RETENTION"
SECRETS_KEY_FILE = "PERDURE_SECRETS_KEY_FILE"

TABLES = frozenset(
    {"policy", "keychain", "retention", "server", "limits", "route", "workers", "pools", "oidc", "feed", "hooks"}
    | {"secrets", "traces", "mcp", "audit", "metrics"}
)
"""Of the settings file, each read by those whom it concerns. It may have others, but no misspelling of these."""

CODE = frozenset({"shell", "script", "python", "container"}).union(*(brought.code for brought in LANGUAGE_PROVIDERS))
"""Providers that run code which a document brings along, or programs which it names."""


_HOST_NAME = lazy_regex(r"[\w-]+(\.[\w-]+)*\.?")


class BadPolicy(PerdureError):
    """The settings file or the environment contains an invalid policy."""

    code = "POLICY-INVALID"
    hint = "docs/security.md lists the settings of a policy."


class NamespacePolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one namespace has instead of the general list."""

    code: Literal["allow", "deny"] | None = None
    providers: list[str] | None = None


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: Literal["allow", "deny"] = "allow"
    providers: list[str] | None = None  # patterns; None: all
    namespaces: dict[str, NamespacePolicy] = {}
    network: Literal["open", "closed"] = "open"
    addresses: list[str] = []
    denied_addresses: list[str] = []
    proxy: str | None = None
    sqlite_folders: list[str] | None = None  # None: the working directory
    duckdb_folders: list[str] | None = None
    script_folders: list[str] | None = None  # for scripts of documents without a folder
    sqlite_memory: str = "512MB"
    duckdb_memory: str = "1GB"
    duckdb_threads: int = 2
    database_seconds: float = 3600  # of a task of `sqlite` or `duckdb`, from start to end
    postgres_server_files: bool = False  # COPY … PROGRAM, files of the database server, privileged roles

    def refusal(self, provider: str, namespace: str = "default") -> str | None:
        """Why documents of this namespace may not use the provider; None when they may.

        `code` and `providers` both have to allow it: a pattern such as `engram*` allows no program by accident.
        """
        namespace_policy = self.namespaces.get(namespace)
        place = f"policy.namespaces.{namespace}"
        code, source = (
            (self.code, "policy")
            if namespace_policy is None or namespace_policy.code is None
            else (namespace_policy.code, place)
        )
        if code == "deny" and provider in CODE:
            return f"the operator's policy does not allow {provider!r}, which runs code ({source}.code is 'deny')"
        listed, source = (
            (self.providers, "policy")
            if namespace_policy is None or namespace_policy.providers is None
            else (namespace_policy.providers, place)
        )
        if listed is None or any(fnmatchcase(provider, pattern) for pattern in listed):
            return None
        return f"the operator's policy does not allow {provider!r} here ({source}.providers does not list it)"

    @property
    def checks_addresses(self) -> bool:
        return self.network == "closed" or bool(self.denied_addresses)


class Keychain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Variables (patterns) and files or folders that the keychain may read, besides those reserved for it."""

    env: list[str] = []
    files: list[str] = []


class KeptRuns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long runs are kept after their end; what is not given fits every run."""

    keep: str  # a duration, or `forever`
    language: str = ""
    document: str = ""
    namespace: str = ""
    status: str | list[str] = ""


class SecretsTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """With which keys kept secrets are encrypted: the first writes, all of them read."""

    key_file: str | list[str] = []


class _Settings(msgspec.Struct):
    """The tables of a settings file that are used here."""

    policy: dict[str, Any] = {}
    keychain: dict[str, Any] = {}
    retention: list[dict[str, Any]] = []
    secrets: dict[str, Any] = {}


SERVER = Policy(network="closed", sqlite_folders=[], duckdb_folders=[], script_folders=[], database_seconds=600)
"""The default of a server."""

API = msgspec.structs.replace(SERVER, code="deny")
"""The default for documents that come through the API of a server."""

EMBEDDED = Policy()


def read_policy(environment: Mapping[str, str], default: Policy = EMBEDDED) -> Policy:
    """The policy in force: from the environment, else the settings file, else the default, member by member."""
    members = {**_settings(environment).policy, **_from_variable(environment)}
    named = {field.name: getattr(default, field.name) for field in msgspec.structs.fields(Policy)}
    try:
        policy = msgspec.convert({**msgspec.to_builtins(named), **members}, Policy)
    except msgspec.ValidationError as error:
        raise BadPolicy(f"the policy cannot be read: {error}") from None
    for memory in (policy.sqlite_memory, policy.duckdb_memory):
        bytes_of(memory)
    for network in (*policy.addresses, *policy.denied_addresses):
        _check_address(network)
    return policy


def read_keychain(environment: Mapping[str, str]) -> Keychain:
    try:
        keychain = msgspec.convert(_settings(environment).keychain, Keychain)
    except msgspec.ValidationError as error:
        raise BadPolicy(f"[keychain] cannot be read: {error}") from None
    env, files = environment.get(KEYCHAIN_ENV), environment.get(KEYCHAIN_FILES)
    return Keychain(keychain.env if env is None else _listed(env), keychain.files if files is None else _listed(files))


def read_key_files(environment: Mapping[str, str]) -> list[str]:
    """The files with the keys of kept secrets: those of the environment, else of the settings file."""
    if (text := environment.get(SECRETS_KEY_FILE)) is not None:
        return _listed(text)
    try:
        files = msgspec.convert(_settings(environment).secrets, SecretsTable).key_file
    except msgspec.ValidationError as error:
        raise BadPolicy(f"[secrets] cannot be read: {error}") from None
    return [files] if isinstance(files, str) else files


def read_retention(environment: Mapping[str, str]) -> list[KeptRuns]:
    """How long ended runs are kept: the rules of the environment, else those of the settings file."""
    text = environment.get(RETENTION, "").strip()
    try:
        if text:
            return msgspec.json.decode(text, type=list[KeptRuns])
        return msgspec.convert(_settings(environment).retention, list[KeptRuns])
    except msgspec.DecodeError as error:
        raise BadPolicy(f"{RETENTION if text else '[[retention]]'} cannot be read: {error}") from None


def _listed(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _from_variable(environment: Mapping[str, str]) -> dict[str, Any]:
    text = environment.get(POLICY, "").strip()
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise BadPolicy(f"{POLICY} is not a JSON object: {error}") from None


def _settings(environment: Mapping[str, str]) -> _Settings:
    name = environment.get(CONFIG, "").strip()
    if not name:
        return _Settings()
    import tomllib
    from difflib import get_close_matches

    try:
        tables = tomllib.loads(Path(name).read_text("utf-8"))
        for table in sorted(tables.keys() - TABLES):
            if meant := get_close_matches(table.lower(), TABLES, 1):
                raise BadPolicy(f"the settings file {name!r} ({CONFIG}) has a table [{table}]: is [{meant[0]}] meant?")
        return msgspec.convert(tables, _Settings)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BadPolicy(f"the settings file {name!r} ({CONFIG}) cannot be read: {error}") from None


_UNITS = {
    unit: base ** (power + 1)
    for base, spelling in ((1000, "{}B"), (1024, "{}iB"))
    for power, unit in enumerate(map(spelling.format, "KMGT"))
}


def bytes_of(size: str) -> int:
    """A size as written in the policy: `512MB`, `1.5 GiB`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]i?B)\s*", size, re.IGNORECASE)
    unit = match and next((name for name in _UNITS if name.lower() == match[2].lower()), None)
    if not match or unit is None:
        raise BadPolicy(f"{size!r} in the policy is not a size (expected e.g. 512MB or 1GiB)")
    return int(float(match[1]) * _UNITS[unit])


def _check_address(text: str) -> None:
    """A network, an address, or the exact name of a host."""
    from ipaddress import ip_network

    try:
        ip_network(text, strict=False)
    except ValueError:
        if not _HOST_NAME.fullmatch(text) or text.replace(".", "").isdigit():  # not a pattern: it would match nothing
            raise BadPolicy(f"{text!r} in the policy is neither a network, an address nor a host name") from None


_in_force: Policy | None = None


def policy_in_force() -> Policy:
    """The policy of this process, read at its first use."""
    global _in_force
    if _in_force is None:
        _in_force = read_policy(os.environ)
    return _in_force


@lru_cache(maxsize=4096)
def refusal_in_force(provider: str, namespace: str, of_document: str = "", from_api: bool = False) -> str | None:
    """Why a task may not begin, by the policy of this moment. The namespaces of run and document both count.

    `from_api`: the document came through the API of a server; then the policy for such documents counts too.
    """
    judges = [policy_in_force().refusal, *([refusal_for_api] if from_api else [])]
    namespaces = [namespace, *([of_document] if of_document not in ("", namespace) else [])]
    refusals = (judge(provider, place) for judge in judges for place in namespaces)
    return next((refusal for refusal in refusals if refusal is not None), None)


def use_policy(policy: Policy | None, for_api: Policy | None = None) -> None:
    """Use this policy from now on; None: read it again when it is needed."""
    global _in_force, _for_api
    _in_force, _for_api = policy, for_api
    refusal_in_force.cache_clear()


_for_api: Policy | None = None

of_api_document: ContextVar[bool] = ContextVar("of_api_document", default=False)
"""Whether the task that is being done belongs to a document that came through the API of a server."""


def policy_for_api() -> Policy:
    """The policy that binds documents that come through the API of a server."""
    return _for_api or API


def refusal_for_api(provider: str, namespace: str = "default") -> str | None:
    """Why a document that comes through the API may not use the provider; None when it may.

    Code is denied unless the policy says `code = "allow"`, or the list of the namespace names the provider itself.
    """
    policy = policy_for_api()
    listed = policy.namespaces.get(namespace, NamespacePolicy())
    if provider in CODE and listed.code is None and provider in (listed.providers or ()):
        return None
    return policy.refusal(provider, namespace)


@contextmanager
def serving_policy() -> Iterator[None]:
    """As a server: what is not configured is closed. Processes that are started meanwhile get the same."""
    policy, for_api = read_policy(os.environ, SERVER), read_policy(os.environ, API)
    before = os.environ.get(POLICY)
    os.environ[POLICY] = msgspec.json.encode(policy).decode()
    use_policy(policy, for_api)
    try:
        yield
    finally:
        use_policy(None)
        if before is None:
            del os.environ[POLICY]
        else:
            os.environ[POLICY] = before
