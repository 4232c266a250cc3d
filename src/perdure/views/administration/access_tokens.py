"""Tokens for a server: made, listed and revoked on the store. Of a token only its digest is kept."""

import re
import secrets
from collections.abc import Callable, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Any

import msgspec

from perdure.engine.client import Client
from perdure.kernel.errors import Conflict
from perdure.kernel.ids import namespace_problem
from perdure.kernel.json_values.values import Instant
from perdure.stores.access import AccessTokenRow
from perdure.views.api_errors import TokenNotFound
from perdure.views.errors import BadRequest
from perdure.views.times import iso

PREFIX = "pdr_"  # so that tools which look for secrets in texts recognize one
FIRST = "admin"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")


class AccessRole(StrEnum):
    """What a token allows. Each of viewer, operator, author and admin includes those before it."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    AUTHOR = "author"
    ADMIN = "admin"
    WORKER = "worker"  # only the worker protocol

    def includes(self, needed: "AccessRole") -> bool:
        if AccessRole.WORKER in (self, needed):
            return self is needed or self is AccessRole.ADMIN
        return _ORDER[self] >= _ORDER[needed]


_ORDER = {role: place for place, role in enumerate(AccessRole)}


class CreatedToken(msgspec.Struct, frozen=True):
    """A token as it is told once."""

    name: str
    role: str
    namespaces: tuple[str, ...] | None
    pools: tuple[str, ...]
    expires_at: str | None
    token: str


def digest_of(token: str) -> bytes:
    return sha256(token.encode()).digest()


async def create_token(
    client: Client,
    name: str,
    role: AccessRole,
    *,
    namespaces: Sequence[str] = (),
    pools: Sequence[str] = (),
    expires_in: Instant | None = None,
    by: str,
) -> CreatedToken:
    """A new token, which nobody can read again. No namespaces: all of them."""
    if not _NAME.fullmatch(name):
        raise BadRequest(f"{name!r} is not a name of a token (expected letters, digits and . _ @ -, at most 63)")
    for namespace in namespaces:
        check_namespace(namespace)
    if bool(pools) != (role is AccessRole.WORKER):
        raise BadRequest("pools are for the role worker, which needs at least one")
    now = client.clock.now()
    token = PREFIX + secrets.token_urlsafe(32)
    row = AccessTokenRow(
        name,
        digest_of(token),
        role.value,
        tuple(dict.fromkeys(namespaces)) or None,
        tuple(dict.fromkeys(pools)),
        now,
        by,
        None if expires_in is None else now + expires_in,
    )
    if not await client.store.add_token(row):
        raise Conflict(f"the name {name!r} was used for a token before", hint="Choose another name.")
    return CreatedToken(name, role.value, row.namespaces, row.pools, iso(row.expires_at), token)


def check_namespace(namespace: str) -> None:
    if problem := namespace_problem(namespace):
        raise BadRequest(problem)


async def create_first_token(client: Client, keep: Callable[[str], None] = lambda token: None) -> str | None:
    """An admin token, if the store has no tokens yet: of several servers that start at once, one makes it.

    `keep` gets the token before it counts, so that it is not lost with the process.
    """
    if await client.store.tokens():
        return None
    token = PREFIX + secrets.token_urlsafe(32)
    keep(token)
    row = AccessTokenRow(FIRST, digest_of(token), AccessRole.ADMIN.value, None, (), client.clock.now(), "store")
    return token if await client.store.add_token(row, only_first=True) else None


async def list_tokens(client: Client, visible: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """All tokens without the tokens; `visible`: those that are limited to these namespaces."""
    now = client.clock.now()
    return [token_json(row, now) for row in await client.store.tokens() if is_within(row, visible)]


def is_within(row: AccessTokenRow, namespaces: Sequence[str] | None) -> bool:
    """Whether a token reaches no further than these namespaces; None: all."""
    return namespaces is None or (row.namespaces is not None and set(row.namespaces) <= set(namespaces))


def token_json(row: AccessTokenRow, now: Instant) -> dict[str, Any]:
    return {
        "name": row.name,
        "role": row.role,
        "namespaces": None if row.namespaces is None else list(row.namespaces),
        "pools": list(row.pools),
        "created_at": iso(row.created_at),
        "created_by": row.created_by,
        "expires_at": iso(row.expires_at),
        "revoked_at": iso(row.revoked_at),
        "valid": row.is_valid_at(now),
    }


async def revoke_token(client: Client, name: str, visible: Sequence[str] | None = None) -> dict[str, Any]:
    """The token as it is listed from now on: revoked."""
    now = client.clock.now()
    known = {row.name for row in await client.store.tokens() if is_within(row, visible)}
    if name not in known or not await client.store.revoke_token(name, now):
        raise TokenNotFound(f"there is no token {name!r}")
    return next(token_json(row, now) for row in await client.store.tokens() if row.name == name)
