"""Declarations of the keychain: kinds, scopes and lifetimes (PBK-010, 181, 182), and which secrets they refer to.

Secrets of the host are referred to by name. Others come with the request: members of `workload` that secret fields of
the keychain read (PBK-185). The run is recorded with its input, since it needs it; views of it omit them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.dialects.playbook.plan.program import SCOPES, KeychainEntry, Program
from perdure.dialects.playbook.plan.workload import literals, overlay
from perdure.expressions.jinja import Template, TemplateReads, all_reads
from perdure.kernel.secrets.credentials import PUBLIC, secret_texts

KINDS: Mapping[str, tuple[str, ...]] = {
    "secret_manager": ("provider", "map", "project", "version", "vault", "endpoint"),
    "oauth2": ("endpoint", "url", "method", "headers", "params", "data", "body", "payload", "token_field", "ttl_field"),
    "http": ("endpoint", "url", "method", "headers", "params", "data", "body", "payload", "token_field", "ttl_field"),
    "bearer": ("token", "access_token", "value", "ref", "credential", "key"),
    "basic": ("username", "user", "password", "ref", "credential", "key"),
    "api_key": ("value", "api_key", "key", "token", "header", "in", "param", "ref", "credential"),
    "postgres_credential": (
        *("host", "port", "user", "username", "password", "database", "dbname", "schema", "sslmode", "dsn"),
        *("db_host", "db_port", "db_user", "db_password", "db_name", "ref", "credential", "key"),
    ),
    "credential_ref": ("ref", "credential", "credential_ref", "key"),
    "static": ("map",),
}
"""The fields of each kind of entry, besides those common to all."""

COMMON = ("name", "kind", "scope", "ttl_seconds", "auto_renew", "auth", "description", "desc")
MANAGERS = ("gcp", "aws", "azure", "env", "file")
LIFETIMES = {"local": 3600.0, "global": 86_400.0, "shared": 86_400.0}
OLD_SCOPES = {"execution": "local", "catalog": "global"}
SECRET_FIELDS = ("token", "access_token", "password", "value", "api_key", "client_secret", "db_password")
NO_FIELDS = ("name", "kind", "scope", "ttl_seconds", "auto_renew", "description", "desc")


def compile_keychain(entries: Sequence[Mapping[str, Any]]) -> dict[str, KeychainEntry]:
    return {entry["name"]: _compile_entry(entry) for entry in entries}


def _compile_entry(entry: Mapping[str, Any]) -> KeychainEntry:
    scope = entry.get("scope", "local")
    return KeychainEntry(
        entry["name"],
        entry["kind"],
        scope,
        float(entry.get("ttl_seconds", LIFETIMES[scope])),
        entry.get("auto_renew", False),
        Template({name: value for name, value in entry.items() if name not in NO_FIELDS}),
    )


# Secrets of the host, by name.

CREDENTIAL_NAMES = ("ref", "credential", "credential_ref", "key", "auth")
"""Fields of an entry that may name a credential stored on the host."""


def declared_secret_names(keychain: Mapping[str, KeychainEntry]) -> Iterator[str]:
    """The names of secrets of the host that the entries read, if the names are literal."""
    for declared in keychain.values():
        document = declared.fields.document
        fields: Mapping[str, Any] = document if isinstance(document, dict) else {}
        if declared.kind == "secret_manager":
            yield from host_secret_names(fields, fields.get("map") or {"value": declared.name})
        else:
            yield declared.name
            names = (declared.name, *(fields.get(field) for field in CREDENTIAL_NAMES))
            yield from (f"credential:{name}" for name in names if isinstance(name, str))


def host_secret_names(fields: Mapping[str, Any], names: Any) -> Iterator[str]:
    """Names of a secret manager that is this machine, as a worker resolves them."""
    manager = fields.get("provider") or "env"
    if manager in ("env", "file") and isinstance(names, dict):
        yield from (f"{manager}:{name}" for name in names.values() if isinstance(name, str))


# Secrets that came with the request.

NAMING = frozenset({"secret_manager", "credential_ref"})
"""Kinds whose fields name secrets, but do not contain them."""

_NAMES = PUBLIC | frozenset(
    {
        *("ref", "credential", "credential_ref", "auth", "token_field", "ttl_field", "method", "param"),
        *("client_id", "grant_type", "audience", "content-type", "accept"),
    }
)


def has_secret_inputs(program: Program, options: Mapping[str, Any]) -> bool:
    return bool(program.keychain) or "shared" in options


def secret_inputs(program: Program, input: Any, options: Mapping[str, Any]) -> Iterator[str]:
    """`given`: the input of the run, or the part of its workload that goes with a task."""
    if options.get("lent") and isinstance(input, dict):
        input = input.get("workload")
    yield from _in_workload(program, overlay(literals(program.workload.document), input or {}))
    for shared in (options.get("shared") or {}).values():
        yield from secret_texts(shared.get("workload"))


def _in_workload(program: Program, workload: Any) -> Iterator[str]:
    reads = all_reads(_secret_reads(declared) for declared in program.keychain.values())
    members = reads.members.get("workload", frozenset())
    bare = reads.names - SCOPES if program.is_io else frozenset[str]()
    if not isinstance(workload, dict):
        return
    for name in workload if members is None else members | bare:
        yield from secret_texts(workload.get(name))


def _secret_reads(declared: KeychainEntry) -> TemplateReads:
    if declared.kind in NAMING:
        return TemplateReads()
    names = _NAMES if declared.kind == "api_key" else _NAMES | {"key"}
    return all_reads(Template(text).reads for text in secret_texts(declared.fields.document, names))
