"""Who sends a request: the token behind `Authorization`, known to every server within a second."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, NoReturn

from starlette.types import Scope

from perdure.engine.clock import until_beat
from perdure.kernel.errors import PerdureError
from perdure.server.browser_sessions import BrowserSessions
from perdure.server.calls import Caller
from perdure.server.request_reading import read_headers
from perdure.stores.access import AccessTokenRow
from perdure.views.administration.access_tokens import AccessRole, digest_of
from perdure.views.api_errors import AccessDenied, HostUnknown, NotAuthenticated, NotReady, TooManyRequests
from perdure.wiring import Engine

if TYPE_CHECKING:
    from perdure.server.oidc import OidcProvider

READ_EVERY = 0.5  # seconds between two looks at the tokens of the store
REST_AFTER = 60.0  # seconds in which nobody was asked for; then they are looked at when somebody is
STALE = 5.0  # seconds without a look, after which nobody is known any more
REFUSED_LOG_INS = 20  # a minute and address
SESSIONS = 60  # a minute and token
TOOL_CALLS = 600  # that language models say of themselves, a minute and token
ADDRESSES = 10_000  # and tokens whose log-ins are counted
SESSION_TOKEN = "x-session-token"  # how NoETL's clients may send the access token
FORWARDED = ("forwarded", "via", "x-real-ip")


class AccessTokens:
    """The tokens of the store, read again and again; revoked ones are forgotten at once on every server."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._by_digest: dict[bytes, AccessTokenRow] = {}
        self._by_name: dict[str, AccessTokenRow] = {}
        self._callers: dict[bytes, Caller] = {}  # by the digest of the token, since the last look
        self._read_at = self._asked_at = float("-inf")
        self._is_resting = False
        self._asked = asyncio.Event()
        self._followed: dict[bytes, float] = {}  # sessions of streams, and when they were last asked about
        self._ended: set[bytes] = set()  # those among them that were ended

    async def read(self) -> None:
        rows = await self._engine.store.tokens()
        self._by_digest = {row.digest: row for row in rows}
        self._by_name = {row.name: row for row in rows}
        self._callers = {}
        self._read_at = time.monotonic()
        for session, asked_at in list(self._followed.items()):
            if self._read_at - asked_at > STALE:
                del self._followed[session]
                self._ended.discard(session)
            elif await self._engine.store.find_session(session) is None:
                self._ended.add(session)

    async def keep(self) -> None:
        """Read them again and again while somebody uses them, until cancelled."""
        while True:
            await asyncio.sleep(until_beat(READ_EVERY))
            if time.monotonic() - self._asked_at > REST_AFTER:
                self._is_resting = True
                await self._asked.wait()
                self._is_resting = False
            self._asked.clear()
            try:
                await self.read()
            except PerdureError:
                pass  # a store that is away: who is known stays known for some seconds, see `find`

    async def _be_current(self, *, must_read: bool = False) -> None:
        """Before somebody is recognized."""
        now = self._note_use()
        is_stale = must_read or now - self._read_at > STALE
        if is_stale or self._is_resting:
            try:
                await self.read()
            except PerdureError as error:
                if is_stale:
                    raise NotReady("the store does not answer; tokens cannot be checked") from error

    def _note_use(self) -> float:
        now = self._asked_at = time.monotonic()
        self._asked.set()
        return now

    async def find(self, token: str) -> AccessTokenRow | None:
        """The valid token; one that is unknown is looked up before it is refused."""
        await self._be_current()
        digest = digest_of(token)
        row = self._by_digest.get(digest)
        if row is None:
            row = await self._engine.store.find_token(digest)
            if row is not None:
                self._by_digest[digest] = self._by_name[row.name] = row
        return row if row is not None and row.is_valid_at(self._engine.clock.now()) else None

    def caller(self, row: AccessTokenRow) -> Caller:
        """Who sends the token of this row."""
        caller = self._callers.get(row.digest)
        if caller is None:
            caller = Caller(row.name, AccessRole(row.role), "token", row.namespaces, row.pools, row.expires_at)
            self._callers[row.digest] = caller
        return caller

    async def named(self, name: str) -> AccessTokenRow | None:
        """The valid token of this name, as `find` knows it."""
        await self._be_current(must_read=name not in self._by_name)
        row = self._by_name.get(name)
        return row if row is not None and row.is_valid_at(self._engine.clock.now()) else None

    async def is_still_valid(self, caller: Caller) -> bool:
        """The same as `is_valid`, asked once: the store is read if nobody has looked at it for long."""
        await self._be_current()
        if caller.session and await self._engine.store.find_session(caller.session) is None:
            return False
        return self.is_valid(caller)

    async def is_in_force(self, caller: Caller) -> bool:
        """The same, asked of the store: before something is told that was waited for. Others revoke tokens too."""
        row = self._by_name.get(caller.name) if caller.via == "token" else None
        if row is not None:
            with suppress(PerdureError):  # a store that is away: who is known stays known for some seconds
                current = await self._engine.store.find_token(row.digest)
                if current is not None:
                    self._by_digest[row.digest] = self._by_name[row.name] = current
        return await self.is_still_valid(caller)

    def is_valid(self, caller: Caller) -> bool:
        """Whether the caller is still who they were: asked for streams, again and again."""
        now, asked_at = self._engine.clock.now(), self._note_use()
        if caller.session:
            self._followed[caller.session] = asked_at
            if caller.session in self._ended:
                return False
        if caller.via != "token":
            return caller.expires_at is None or now < caller.expires_at
        row = self._by_name.get(caller.name)
        return (
            row is not None
            and row.is_valid_at(now)
            and (row.role, row.namespaces) == (caller.role.value, caller.namespaces)
        )


class LogIns:
    """By address or token: one with many is refused for a while. IPv6 is counted by /64."""

    def __init__(self, most: int, message: str) -> None:
        self._most = most
        self._message = message
        self._times: OrderedDict[str, list[float]] = OrderedDict()

    def check(self, address: str) -> None:
        times = self._recent(address)
        if len(times) >= self._most:
            refusal = TooManyRequests(self._message, hint="Wait as long as Retry-After says.")
            refusal.retry_after = max(1, int(60 - (time.monotonic() - times[0])) + 1)
            raise refusal

    def count(self, address: str) -> None:
        times = self._recent(address)
        times.append(time.monotonic())
        self._times[network_of(address)] = times
        self._times.move_to_end(network_of(address))
        if len(self._times) > ADDRESSES:
            self._times.popitem(last=False)

    def _recent(self, address: str) -> list[float]:
        since = time.monotonic() - 60
        return [at for at in self._times.get(network_of(address), ()) if at > since]


def network_of(address: str) -> str:
    """By which addresses are counted: one who has an IPv6 address has many."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(IPv6Address(int(parsed) >> 64 << 64))
    return str(parsed)


class Authentication:
    def __init__(
        self,
        engine: Engine,
        anonymous: AccessRole | None,
        oidc: "OidcProvider | None" = None,
        proxies: Sequence[IPv4Network | IPv6Network] = (),
    ) -> None:
        self._proxies = proxies
        self.tokens = AccessTokens(engine)
        self.sessions = BrowserSessions(engine, self.tokens)
        self._clock = engine.clock
        self._anonymous = anonymous
        self._oidc = oidc
        self._refused = LogIns(REFUSED_LOG_INS, "too many requests with a wrong token from this address")
        self._begun = LogIns(SESSIONS, "too many log-ins with this token")
        self._called = LogIns(TOOL_CALLS, "too many calls of tools with this token")

    def is_local(self, headers: Mapping[str, str], address: str) -> bool:
        """Whether a request comes from this machine, through nobody."""
        return _is_direct(headers, address, host_of(headers.get("host", "")))

    def read_headers(self, scope: Scope, peer: str) -> tuple[dict[str, str], str]:
        """The headers of a request, and the address that it comes from: what a proxy of ours says of both counts."""
        headers = read_headers(scope)
        if not self._proxies or not self._is_proxy(peer):
            return headers, peer
        forwarded = {name: _repeated(scope, name) for name in (b"forwarded", b"x-forwarded-for", b"x-forwarded-host")}
        hops, addresses = [dict(_pairs(hop)) for hop in forwarded[b"forwarded"]], forwarded[b"x-forwarded-for"]
        if hops and addresses and host_of(hops[-1].get("for", "")) != host_of(addresses[-1]):
            return headers, peer  # the proxy has written one of them, and whoever called it the other
        addresses = [hop.get("for", "") for hop in hops] or addresses
        host = hops[-1].get("host", "") if hops else "".join(forwarded[b"x-forwarded-host"][-1:])
        if host:
            headers["host"] = host
        for name in reversed(addresses):  # each proxy adds the address that it was called from
            address = host_of(name)
            if not _is_address(address):
                break
            peer = address
            if not self._is_proxy(address):
                break
        return headers, peer

    def _is_proxy(self, address: str) -> bool:
        return _is_address(address) and any(ip_address(address) in network for network in self._proxies)

    async def caller(self, headers: Mapping[str, str], address: str, host: str, method: str) -> Caller:
        authorization = headers.get("authorization")
        if authorization is None and (session_token := headers.get(SESSION_TOKEN)):
            authorization = f"Bearer {session_token}"
        if authorization is None:
            if (session := await self.sessions.find(headers, method)) is not None:
                own = session.token
                about = (own.name, AccessRole(own.role), "token", own.namespaces, own.pools, session.ends_at)
                return Caller(*about, csrf=session.csrf, session=session.digest)
            if self._anonymous is not None and _is_direct(headers, address, host):
                return Caller("anonymous", self._anonymous, via="anonymous")
            raise NotAuthenticated("the request has no access token")
        scheme, _, rest = authorization.partition(" ")
        token = rest.strip() if scheme.lower() == "bearer" else ""
        if self._oidc is not None and token.count(".") == 2:
            try:
                return await self._oidc.caller(token, self._clock.now())
            except NotAuthenticated:
                self._count_refusal(address)
                raise
        row = await self.tokens.find(token) if token else None
        if row is None:
            self.refuse(address, "the access token is not known here, has expired or was revoked")
        return self.tokens.caller(row)

    async def check_known(self, caller: Caller, *, has_waited: bool = False) -> None:
        """Whoever was recognized when a request began may not be known any more when it is carried out."""
        if not await (self.tokens.is_in_force if has_waited else self.tokens.is_still_valid)(caller):
            raise NotAuthenticated("the access token or the session of this request has ended meanwhile")

    async def is_stranger(self, headers: Mapping[str, str], address: str, host: str) -> bool:
        """Whether an event needs a signature: no token, no session and no `--anonymous` lets its sender send it."""
        if carries_token(headers):
            return False
        with suppress(NotAuthenticated):
            return not (await self.caller(headers, address, host, "POST")).role.includes(AccessRole.OPERATOR)
        return True

    def refuse(self, address: str, message: str) -> NoReturn:
        """A proof was wrong. A right one is never refused for its address, which may be that of a proxy."""
        self._count_refusal(address)
        raise NotAuthenticated(message)

    def count_log_in(self, token: str) -> None:
        """Sessions are kept for days, and each is recorded."""
        self._begun.check(token)
        self._begun.count(token)

    def count_tool_call(self, token: str) -> None:
        """Each is a row of the audit log, which is kept for months."""
        self._called.check(token)
        self._called.count(token)

    def _count_refusal(self, address: str) -> None:
        self._refused.check(address)
        self._refused.count(address)


def _repeated(scope: Scope, header: bytes) -> list[str]:
    """The parts of a list in a header, which may be repeated."""
    values = [value.decode("latin-1") for name, value in scope["headers"] if name == header]
    return [part.strip() for value in values for part in value.split(",") if part.strip()]


def _pairs(hop: str) -> list[tuple[str, str]]:
    parts = (part.partition("=") for part in hop.split(";"))
    return [(name.strip().lower(), value.strip().strip('"')) for name, _, value in parts]


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def carries_token(headers: Mapping[str, str]) -> bool:
    return "authorization" in headers or SESSION_TOKEN in headers


def _is_direct(headers: Mapping[str, str], address: str, host: str) -> bool:
    """From this machine, to this machine, through nobody: a reverse proxy would let strangers in."""
    passed_on = any(name in FORWARDED or name.startswith("x-forwarded") for name in headers)
    return is_loopback(address) and is_loopback(host) and not passed_on


def is_loopback(host: str) -> bool:
    name = host.strip("[]").partition("%")[0]
    if name.lower() == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def host_of(host: str) -> str:
    """The name without the port, in lower case."""
    if host.startswith("["):
        name, _, port = host.partition("]")
        return name.lstrip("[").lower() if port[:1] in ("", ":") else host
    return host.partition(":")[0].rstrip(".").lower()


def check_origin(headers: Mapping[str, str], hosts: Collection[str], *, is_health: bool) -> str:
    """The name under which the server is called.

    Pages of strangers reach a server on loopback through the browser: by its name, or from their own.
    """
    host = headers.get("host", "")
    name = host_of(host)
    if not is_health and name not in hosts:
        raise HostUnknown(f"this server is not called {name[:80]!r}")
    site, origin = headers.get("sec-fetch-site", "none"), headers.get("origin")
    is_own = origin is None or origin in (f"http://{host}", f"https://{host}")
    if site not in ("none", "same-origin") or not is_own:
        raise AccessDenied("the request comes from a page of another site", hint="Call the API from a program.")
    return name


def listened_hosts(host: str, names: Sequence[str]) -> frozenset[str]:
    """The names under which a server may be called."""
    own = {host.strip("[]").lower(), *(name.lower() for name in names)}
    if is_loopback(host) or host in ("0.0.0.0", "::"):
        own |= {"localhost", "127.0.0.1", "::1"}
    return frozenset(own)
