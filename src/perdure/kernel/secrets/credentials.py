"""Credentials as maps: which parts of them are secret, and how HTTP uses them.

Authors, stored credentials and responses of token servers use different names for the same things; they are unified
here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

PUBLIC = frozenset(
    {
        *(
            "type",
            "kind",
            "name",
            "description",
            "tags",
            "header",
            "in",
            "scope",
            "token_type",
            "expires_in",
            "expires_at",
        ),
        *("host", "hostname", "port", "user", "username", "database", "dbname", "db", "schema", "sslmode", "driver"),
        *("db_host", "db_port", "db_user", "db_name", "db_schema", "account", "warehouse", "role", "region"),
        *("endpoint", "url", "issuer", "created_at", "path"),
    }
)
"""Members of a credential that are not secret: masking `postgres` or `Bearer` everywhere would garble every text."""


REFERENCES = ("ref", "credential", "credential_ref", "key")
"""Fields of a keychain entry that name a stored credential; without any, it is called like the entry."""


def secret_texts(value: Any, public: frozenset[str] = PUBLIC) -> Iterator[str]:
    """The texts and numbers in a credential, without those under a public name."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            if str(name).lower() not in public:
                yield from secret_texts(inner, public)
    elif isinstance(value, list):
        for inner in value:
            yield from secret_texts(inner, public)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def is_reference(text: str) -> bool:
    """Whether it names a secret of the host instead of being one: `env:NAME`, `file:NAME`."""
    source, colon, name = text.partition(":")
    return source in ("env", "file") and bool(colon) and bool(name.strip())


@dataclass(frozen=True, slots=True)
class ResolvedSecret:
    """A secret as its source returned it, and which texts in it must be masked.

    `lifetime` in seconds, if the source states one; `all_secret`: also the members that are usually public are masked.
    """

    value: Any
    lifetime: float | None = None
    all_secret: bool = False
    kind: str | None = None  # set if it differs from the kind of the entry: the kind of a referenced credential

    def secrets(self) -> Iterator[str]:
        return secret_texts(self.value, frozenset() if self.all_secret else PUBLIC)


_TOKENS = ("token", "access_token", "id_token", "bearer", "value")
_USERS = ("username", "user", "client_id", "login")
_PASSWORDS = ("password", "client_secret", "secret")
_KEYS = ("key", "api_key", "apikey", "value", "token")


def first(value: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    """The first of these members that is a non-empty text."""
    return next((text for name in names if isinstance(text := value.get(name), str) and text), None)


def for_http(kind: str, value: Any) -> dict[str, Any] | None:
    """`{type: bearer | basic | api_key, …}`, or None when nothing of the kind is in the value."""
    if isinstance(value, str):
        return {"type": "bearer", "token": value} if value else None
    if not isinstance(value, Mapping):
        return None
    kind_name = str(value.get("type") or kind)
    token, user, password = first(value, _TOKENS), first(value, _USERS), first(value, _PASSWORDS)
    if "api" in kind_name.replace("-", "_").split("_") or (kind_name in ("header", "query")):
        key = first(value, _KEYS)
        named = value.get("name") if "in" in value else None
        name = value.get("header") or value.get("param") or named or "X-API-Key"
        place = "query" if value.get("in") == "query" or "param" in value else "header"
        return None if key is None else {"type": "api_key", "name": str(name), "value": key, "in": place}
    if kind_name == "basic" or (token is None and user is not None and password is not None):
        return None if user is None else {"type": "basic", "username": user, "password": password or ""}
    if token is not None:
        return {"type": "bearer", "token": token}
    if (key := first(value, _KEYS)) is not None:
        return {"type": "api_key", "name": str(value.get("header") or "X-API-Key"), "value": key, "in": "header"}
    return None


class SecretsOfTask(Protocol):
    """Secrets and ConfigMaps of the catalog that the document of a task names, as they were when it began."""

    def secret(self, name: str) -> str | None:
        """The value of a key of a Secret: `name/key`."""
        ...

    def config(self, name: str, key: str) -> str | None:
        """The same of a ConfigMap."""
        ...

    def texts(self, name: str) -> Iterator[str]:
        """The texts to mask for a name in `Assignment.secrets`."""
        ...
