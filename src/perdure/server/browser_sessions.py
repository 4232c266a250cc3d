"""Sessions of browsers: made from a token or a code that counts once, known to every server, ended with the token.

A session is a row with the digest of 256 random bits, which the cookie has. What a page changes needs a second value,
which only pages of this server can read: `csrf` of `/api/v1/whoami`, in the header `X-CSRF-Token`.
"""

import hmac
import secrets
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from perdure.kernel.json_values.values import SECOND, Instant
from perdure.stores.access import AccessTokenRow, SessionRow
from perdure.views.administration.access_tokens import digest_of
from perdure.views.api_errors import AccessDenied, NotAuthenticated

if TYPE_CHECKING:
    from perdure.server.authentication import AccessTokens
    from perdure.wiring import Engine

IDLE: Instant = 12 * 3_600 * SECOND
LONGEST: Instant = 7 * 86_400 * SECOND
CODE: Instant = 600 * SECOND
SEEN_EVERY: Instant = 300 * SECOND  # after which a request is written down: idle times are that exact
CSRF = "x-csrf-token"
READS = ("GET", "HEAD")


class BrowserSession(msgspec.Struct, frozen=True):
    """One that lasts."""

    digest: bytes
    token: AccessTokenRow
    ends_at: Instant
    csrf: str


class BrowserSessions:
    def __init__(self, engine: "Engine", tokens: "AccessTokens") -> None:
        self._store = engine.store
        self._clock = engine.clock
        self._tokens = tokens
        self.cookie, self._is_secure = "perdure", False

    def listen(self, port: int, *, is_tls: bool) -> None:
        """Cookies know no ports: two servers on one machine have two names. Under TLS the browser checks more."""
        self.cookie, self._is_secure = ("__Host-perdure" if is_tls else f"perdure-{port}"), is_tls

    async def begin(self, token: str) -> tuple[str, str]:
        """A new session of the token with this name: its secret, and the header that gives it to the browser."""
        now, secret = self._clock.now(), secrets.token_urlsafe(32)
        await self._store.add_session(SessionRow(digest_of(secret), token, now, now), expired=now - LONGEST)
        return secret, self._header(secret, LONGEST // SECOND)

    def end_header(self) -> str:
        return self._header("", 0)

    def _header(self, secret: str, lasts: int) -> str:
        secure = "; Secure" if self._is_secure else ""
        return f"{self.cookie}={secret}; Path=/; HttpOnly; SameSite=Strict; Max-Age={lasts}{secure}"

    async def make_code(self, token: str) -> str:
        """A code from which one session of this token is made, within ten minutes."""
        now, code = self._clock.now(), secrets.token_urlsafe(32)
        row = SessionRow(digest_of(code), token, now, now, is_code=True)
        await self._store.add_session(row, expired=now - LONGEST)
        return code

    async def take_code(self, code: str) -> AccessTokenRow | None:
        """The valid token for which the code was made; the code counts no longer."""
        name = await self._store.take_code(digest_of(code), self._clock.now() - CODE)
        return None if name is None else await self._tokens.named(name)

    async def end(self, digest: bytes) -> None:
        await self._store.end_session(digest)

    async def find(self, headers: Mapping[str, str], method: str) -> BrowserSession | None:
        """Whose session the cookie is; None without one. What changes something must come from a page of ours."""
        secret = self._secret(headers)
        if not secret:
            return None
        now, digest = self._clock.now(), digest_of(secret)
        row = await self._store.find_session(digest)
        token = None if row is None or row.is_code else await self._tokens.named(row.token)
        if row is None or token is None or row.seen_at + IDLE <= now or row.created_at + LONGEST <= now:
            raise NotAuthenticated("the session has ended, or its access token has", hint="Log in again.")
        csrf = csrf_of(secret)
        if method not in READS and not hmac.compare_digest(headers.get(CSRF, "").encode(), csrf.encode()):
            raise AccessDenied(
                "a request with a session needs the header X-CSRF-Token",
                hint="Its value is `csrf` of GET /api/v1/whoami; programs send an access token instead.",
            )
        if now - row.seen_at >= SEEN_EVERY:
            await self._store.see_session(digest, now)
        ends_at = min(row.created_at + LONGEST, token.expires_at or row.created_at + LONGEST)
        return BrowserSession(digest, token, ends_at, csrf)

    def _secret(self, headers: Mapping[str, str]) -> str:
        """Of our cookie, which is never quoted; `http.cookies` may need seconds for what a stranger sends."""
        for part in headers.get("cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == self.cookie:
                return value
        return ""


def csrf_of(secret: str) -> str:
    """Follows from the secret of the session, which no page can read."""
    return sha256(f"csrf\0{secret}".encode()).hexdigest()
