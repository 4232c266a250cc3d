"""OpenID Connect: what a signed token of an identity provider allows here (extra `oidc`).

    [oidc]                                   # the settings file
    issuer = "https://id.example.org"        # exactly as the provider writes it
    audience = "perdure"

    [[oidc.roles]]                           # the first one that fits counts
    claim = "groups"                         # of the token; `realm_access.roles` looks inside
    value = "platform"                       # equal to the claim, or a member of it
    role = "admin"
    namespaces = ["shop"]                    # none: all

Only signatures with a public key count. The keys are the provider's, found by discovery and read again.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import msgspec

from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values.values import SECOND
from perdure.providers.failure import ProviderFailure
from perdure.providers.http_client import as_written, paced_transport
from perdure.server.authentication import is_loopback
from perdure.server.calls import Caller
from perdure.server.limits import BadServerSettings, OidcRole, OidcTable
from perdure.views.administration.access_tokens import AccessRole, check_namespace
from perdure.views.api_errors import NotAuthenticated, NotReady
from perdure.views.errors import BadRequest

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
SKEW = 60.0  # seconds that two clocks may differ
READ_AGAIN = 600.0  # seconds after which keys are read again when one is needed
TRUSTED = 3_600.0  # seconds for which keys count while the provider does not answer
UNKNOWN_KEY = 10.0  # seconds between two readings because of a key that is not known
SECONDS = 10.0  # that the provider may take
LARGEST = 1 << 20  # bytes of its documents
REMEMBERED = 1_000  # tokens whose signature was checked
LONGEST_SUBJECT = 255


class OidcProvider:
    """Recognizes the tokens of one identity provider."""

    def __init__(self, table: OidcTable) -> None:
        try:
            import jwt  # noqa: F401  (asked for here, so that its absence is explained)
        except ImportError:
            raise BadServerSettings(
                "[oidc] needs the package PyJWT with cryptography", hint="pip install 'perdure[oidc]'"
            ) from None
        if not _is_confidential(table.issuer):
            raise BadServerSettings(f"[oidc] issuer {table.issuer!r} must be an https address")
        for role in table.roles:
            for namespace in role.namespaces:
                try:
                    check_namespace(namespace)
                except BadRequest as error:
                    raise BadServerSettings(f"[[oidc.roles]]: {error}") from None
        self._table = table
        self._reading = asyncio.Lock()
        self._keys: dict[str, Any] = {}
        self._read_at = float("-inf")
        self._tried_at = float("-inf")
        self._checked: OrderedDict[bytes, dict[str, Any]] = OrderedDict()

    async def caller(self, token: str, now: int) -> Caller:
        """Who the token is about; `NotAuthenticated` says why it does not count."""
        claims = await self._claims(token)
        expires_at = int(claims["exp"] * SECOND)
        if now >= expires_at + int(SKEW * SECOND):
            raise NotAuthenticated("the token of the identity provider has expired")
        subject = claims["sub"]
        if not isinstance(subject, str) or not 0 < len(subject) <= LONGEST_SUBJECT or not subject.isprintable():
            raise NotAuthenticated("the token of the identity provider has no usable subject")
        for role in self._table.roles:
            if _fits(role, claims):
                namespaces = tuple(dict.fromkeys(role.namespaces)) or None
                return Caller(subject, AccessRole(role.role), "oidc", namespaces, (), expires_at, self._table.issuer)
        raise NotAuthenticated(
            "the token of the identity provider has no claim that gives a role here",
            hint="An operator adds one: [[oidc.roles]] in the settings file.",
        )

    async def _claims(self, token: str) -> dict[str, Any]:
        """What the token says, if its signature, issuer, audience and times are right."""
        import jwt

        age = time.monotonic() - self._read_at
        if age > READ_AGAIN and not (age <= TRUSTED and self._reading.locked()):
            await self._read_keys()
        digest = sha256(token.encode()).digest()
        if (known := self._checked.get(digest)) is not None:
            return known
        try:
            head = jwt.get_unverified_header(token)
            if head.get("alg") not in ALGORITHMS:
                raise NotAuthenticated("the signature of the token is of a kind that does not count")
            key = await self._key(head.get("kid"))
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[head["alg"]],
                audience=self._table.audience,
                issuer=self._table.issuer,
                leeway=SKEW,
                options={"require": ["exp", "sub", "iss", "aud"]},
            )
            if not isinstance(claims["exp"], int | float):
                raise TypeError("the library also takes digits in a text")
        except jwt.ExpiredSignatureError:
            raise NotAuthenticated("the token of the identity provider has expired") from None
        except (jwt.PyJWTError, ValueError, TypeError):
            raise NotAuthenticated("the token is not one of this server's identity provider") from None
        self._checked[digest] = claims
        if len(self._checked) > REMEMBERED:
            self._checked.popitem(last=False)
        return claims

    async def _key(self, name: Any) -> Any:
        """The key of this name; a token without a name is signed by the only key there is."""
        if name is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        if name not in self._keys and time.monotonic() - self._tried_at > UNKNOWN_KEY:
            await self._read_keys()
        key = self._keys.get(name) if isinstance(name, str) else None
        if key is None:
            raise NotAuthenticated("the token is signed with a key that the identity provider does not name")
        return key

    async def _read_keys(self) -> None:
        """Read them again, once for all who ask. While the provider is away, those that were read count for an hour."""
        async with self._reading:
            if time.monotonic() - self._tried_at > UNKNOWN_KEY:
                self._tried_at = time.monotonic()
                try:
                    keys = await _fetch_keys(self._table.issuer)
                except IdentityProviderAway as error:
                    if time.monotonic() - self._read_at <= TRUSTED:
                        return
                    self._keys, self._checked = {}, OrderedDict()
                    raise NotReady(f"tokens of the identity provider cannot be checked: {error}") from error
                self._keys, self._checked, self._read_at = keys, OrderedDict(), time.monotonic()
            elif time.monotonic() - self._read_at > TRUSTED:
                raise NotReady("tokens of the identity provider cannot be checked: it does not answer")


class IdentityProviderAway(PerdureError):
    """The identity provider does not answer, or not as OpenID Connect demands."""

    code = "IDENTITY-PROVIDER"
    hint = "Check [oidc] issuer in the settings file, and that the server reaches it."


async def _fetch_keys(issuer: str) -> dict[str, Any]:
    import httpx
    import jwt

    transport = None if getproxies() else paced_transport(httpx.Limits(), True, as_written)
    headers = {"Accept-Encoding": "identity"}  # what it sends is what is counted
    try:
        async with (
            asyncio.timeout(SECONDS),
            httpx.AsyncClient(transport=transport, timeout=SECONDS, headers=headers, follow_redirects=False) as client,
        ):
            configuration = await _fetch(client, f"{issuer.rstrip('/')}/.well-known/openid-configuration")
            if configuration.get("issuer") != issuer:
                raise IdentityProviderAway(f"{issuer} calls itself {str(configuration.get('issuer'))[:200]!r}")
            address = configuration.get("jwks_uri")
            if not isinstance(address, str) or not _is_confidential(address):
                raise IdentityProviderAway(f"{issuer} names no https address of its keys")
            listed = (await _fetch(client, address)).get("keys")
    except (httpx.HTTPError, ProviderFailure, TimeoutError) as error:
        raise IdentityProviderAway(f"{issuer} does not answer ({type(error).__name__})") from None
    keys = {}
    for entry in listed if isinstance(listed, list) else ():
        if not isinstance(entry, dict) or entry.get("kty") == "oct" or entry.get("use", "sig") != "sig":
            continue
        try:
            keys[str(entry.get("kid", ""))] = jwt.PyJWK(entry)
        except jwt.PyJWTError:
            continue  # of a kind that is not known here
    return keys


async def _fetch(client: Any, address: str) -> dict[str, Any]:
    parts, size = [], 0
    async with client.stream("GET", address) as response:
        if response.status_code != 200:
            raise IdentityProviderAway(f"{address} answers {response.status_code}")
        async for part in response.aiter_raw():
            size += len(part)
            if size > LARGEST:
                raise IdentityProviderAway(f"{address} answers with more than {LARGEST} bytes")
            parts.append(part)
    try:
        return msgspec.json.decode(b"".join(parts), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise IdentityProviderAway(f"{address} does not answer with a JSON object") from error


def _is_confidential(address: str) -> bool:
    """Nobody on the way can change what it answers."""
    parts = urlsplit(address)
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))


def _fits(role: OidcRole, claims: Mapping[str, Any]) -> bool:
    held = _claim(claims, role.claim)
    if isinstance(held, str):
        return held == role.value or (role.claim == "scope" and role.value in held.split())
    return isinstance(held, list) and role.value in held


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """The claim of this name; or, with dots, a member inside another."""
    if name in claims:
        return claims[name]
    held: Any = claims
    for part in name.split("."):
        held = held.get(part) if isinstance(held, dict) else None
    return held
