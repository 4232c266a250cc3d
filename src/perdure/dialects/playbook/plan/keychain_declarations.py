"""Declarations of the keychain: kinds, scopes and lifetimes (PBK-010, 181, 182)."""

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.dialects.playbook.plan.program import Declared
from perdure.expressions.jinja import Template

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
}
"""What each kind of entry may say besides the fields of all."""

COMMON = ("name", "kind", "scope", "ttl_seconds", "auto_renew", "auth", "description", "desc")
MANAGERS = ("gcp", "aws", "azure", "env", "file")
LIFETIMES = {"local": 3600.0, "global": 86_400.0, "shared": 86_400.0}
OLD_SCOPES = {"execution": "local", "catalog": "global"}
SECRET_FIELDS = ("token", "access_token", "password", "value", "api_key", "client_secret", "db_password")
NO_FIELDS = ("name", "kind", "scope", "ttl_seconds", "auto_renew", "description", "desc")


def compile_keychain(written: Sequence[Mapping[str, Any]]) -> dict[str, Declared]:
    return {one["name"]: _declared(one) for one in written}


def _declared(one: Mapping[str, Any]) -> Declared:
    scope = one.get("scope", "local")
    return Declared(
        one["name"],
        one["kind"],
        scope,
        float(one.get("ttl_seconds", LIFETIMES[scope])),
        one.get("auto_renew", False),
        Template({name: value for name, value in one.items() if name not in NO_FIELDS}),
    )
