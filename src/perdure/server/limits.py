"""What an operator allows: requests a second, streams, expensive reads of a token; sizes of requests; names."""

import asyncio
import time
import tomllib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from ipaddress import IPv4Network, IPv6Network, ip_network
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values.values import Instant
from perdure.server.hook_settings import HookSettings
from perdure.views.api_errors import TooManyRequests
from perdure.views.times import read_span

SECONDS_OF_STRANGERS = 10.0
LONGEST_PAUSE = 3_600  # seconds that somebody is asked to wait


class RequestLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Counted per server, not for all servers together; each process of a server has its part."""

    body: int = 16 << 20  # bytes
    value: int = 64 << 20  # of a large output of a worker
    discarded: int = 64 << 20  # bytes of a body that is too large that are read on, before the connection is cut
    header: int = 32 << 10
    rate: float = 5_000  # requests a second and token
    burst: float = 10_000
    streams: int = 1_000  # live, per token
    expensive: int = 4  # reads that fold a run or check a document at a time, per token
    expensive_wait: float = 5.0  # seconds that another one waits for its turn
    plays: int = 2  # simulations and tests at a time, of all tokens; each is a process, and a token has one
    connections: int = 10_000
    read_seconds: float = 30.0  # for a whole request
    large: int = 256 << 20  # bytes of large bodies and answers of a token that are in memory
    all_large: int = 1 << 30  # and of all tokens together
    signed: int = 64  # requests at a time that have a signature instead of a token
    signed_body: int = 4 << 20  # bytes of one: it is read before anybody knows who has sent it

    def divided(self, processes: int) -> "RequestLimits":
        """For one of so many processes. What limits a single request stays as it is."""
        counts = {
            name: ceil(getattr(self, name) / processes)
            for name in ("streams", "expensive", "plays", "connections", "signed")
        }
        rates = {"rate": self.rate / processes, "burst": max(1.0, self.burst / processes)}
        sizes = {"large": self.large // processes, "all_large": self.all_large // processes}
        return msgspec.structs.replace(self, **counts, **rates, **sizes)

    def of_strangers(self, most: int) -> "RequestLimits":
        """For requests without a token."""
        most = min(self.body, most)
        return msgspec.structs.replace(
            self, body=most, discarded=2 * most, read_seconds=min(self.read_seconds, SECONDS_OF_STRANGERS)
        )


class Rates:
    """A bucket of requests per caller, refilled all the time."""

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits
        self._buckets: dict[str, tuple[float, float]] = {}  # what is left, and when

    def take(self, caller: str) -> None:
        now = time.monotonic()
        left, at = self._buckets.get(caller, (self._limits.burst, now))
        left = min(self._limits.burst, left + (now - at) * self._limits.rate)
        if left < 1:
            self._buckets[caller] = (left, now)
            refusal = TooManyRequests(f"more than {self._limits.rate:g} requests a second")
            refusal.retry_after = min(LONGEST_PAUSE, max(1, ceil((1 - left) / self._limits.rate)))
            raise refusal
        self._buckets[caller] = (left - 1, now)


class CallerPlaces:
    """How many of something each caller has at a time."""

    def __init__(self, most: int, noun: str) -> None:
        self._most = most
        self._noun = noun
        self._taken: dict[str, int] = {}
        self._freed: dict[str, asyncio.Event] = {}  # of those who have somebody waiting

    @contextmanager
    def one(self, caller: str) -> Iterator[None]:
        if self._taken.get(caller, 0) >= self._most:
            raise TooManyRequests(f"more than {self._most} {self._noun} at a time")
        self._taken[caller] = self._taken.get(caller, 0) + 1
        try:
            yield
        finally:
            self._taken[caller] -= 1
            if not self._taken[caller]:
                del self._taken[caller]
            if caller in self._freed:
                self._freed.pop(caller).set()

    @asynccontextmanager
    async def turn(self, caller: str, wait: float) -> AsyncIterator[None]:
        """The same, after waiting so many seconds for a place."""
        end = time.monotonic() + wait
        while self._taken.get(caller, 0) >= self._most and (left := end - time.monotonic()) > 0:
            freed = self._freed.setdefault(caller, asyncio.Event())
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await freed.wait()
        with self.one(caller):
            yield


class SharedPlaces:
    """Places that all callers share; nobody has more than one at a time."""

    def __init__(self, most: int, noun: str) -> None:
        self._own = CallerPlaces(1, f"of the {noun} of one token")
        self._all = CallerPlaces(most, noun)

    @asynccontextmanager
    async def turn(self, caller: str, wait: float) -> AsyncIterator[None]:
        end = time.monotonic() + wait
        async with self._own.turn(caller, wait), self._all.turn("", max(0.0, end - time.monotonic())):
            yield


LARGE = 1 << 20  # bytes of a body or an answer that is counted


class LargeBytes:
    """Large bodies and answers that are in memory: whoever sends slowly, or does not read, has only so many."""

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits
        self._held: dict[str, int] = {}

    def hold(self, caller: str, size: int) -> "HeldBytes":
        """Raises `TooManyRequests`."""
        held = HeldBytes(self._held, caller)
        if size > LARGE and not self._has_room(caller, size):
            raise TooManyRequests("too many large bodies and answers of this token, or of all, are under way")
        held.set(size)
        return held

    async def room(self, caller: str, size: int) -> "HeldBytes":
        """The same, after waiting for it."""
        if size > LARGE:
            end = time.monotonic() + self._limits.expensive_wait
            while not self._has_room(caller, size) and time.monotonic() < end:
                await asyncio.sleep(0.05)
        return self.hold(caller, size)

    def _has_room(self, caller: str, size: int) -> bool:
        """Whoever has nothing yet is not refused for what one request may have."""
        own, limits = self._held.get(caller, 0), self._limits
        others = sum(self._held.values()) - own
        return not (own and own + size > limits.large) and not (others and own + others + size > limits.all_large)


class HeldBytes:
    """Of one body or answer."""

    def __init__(self, all: dict[str, int], caller: str) -> None:
        self._all, self._caller, self._size = all, caller, 0

    def set(self, size: int) -> None:
        """As many as it has turned out to have; none when it is over."""
        size = size if size > LARGE else 0
        if size == self._size:
            return
        held = self._all.get(self._caller, 0) + size - self._size
        self._size = size
        if held:
            self._all[self._caller] = held
        else:
            self._all.pop(self._caller, None)


CONFIG = "PERDURE_CONFIG"


class BadServerSettings(PerdureError):
    """The settings file has a table for the server that cannot be read."""

    code = "SETTINGS-INVALID"
    hint = "docs/guide/server.md lists the settings of a server."


class ServerTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    hosts: list[str] = []  # further names that requests may call it by
    proxies: list[str] = []  # addresses or networks of proxies: what they say of who called them, and how, counts
    drain_delay: Annotated[float, msgspec.Meta(ge=0, le=3_600)] = 0.0  # seconds between /readyz 503 and the stop


class PoolRoute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tasks of a provider go to a pool of workers elsewhere."""

    provider: str
    pool: str
    schema: dict[str, Any] | None = None  # of its arguments; none: any


class PoolTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One pool of workers elsewhere, by its name."""

    secrets: Literal["keep", "send"] = "keep"  # whether its workers are sent what the store keeps for their tasks


class WorkersTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    lease: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 60.0  # seconds that a worker has a task without a word
    cancel_grace_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 10.0  # that it has to stop what was recalled


Text = Annotated[str, msgspec.Meta(min_length=1)]


class OidcRole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a claim of a token of the identity provider gives."""

    claim: Text
    value: Text  # equal to the claim, or a member of it
    role: Literal["viewer", "operator", "author", "admin"]
    namespaces: list[str] = []  # none: all


class OidcTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    issuer: Text
    audience: Text
    roles: Annotated[list[OidcRole], msgspec.Meta(min_length=1)]  # the first one that fits counts


class AuditTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keep: str = "90d"  # a duration: for how long the rows of the audit log are kept, whole seals at a time


class FeedTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keep: Annotated[float, msgspec.Meta(ge=1, le=86_400 * 30)] = 600.0  # seconds that changes are kept


class TracesTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the traces of runs are sent: OTLP over HTTP."""

    endpoint: str = ""  # http://collector:4318/v1/traces; else as OpenTelemetry's own variables say; empty: nowhere
    headers: dict[str, str] = {}
    headers_file: str = ""  # NAME=VALUE lines, for headers that are secrets
    service: str = "perdure"
    timeout: Annotated[float, msgspec.Meta(gt=0, le=300)] = 10.0  # seconds
    give_up: Annotated[float, msgspec.Meta(ge=0)] = 3_600.0  # seconds after which a trace is not sent any more


class MetricsTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    namespaces: bool = False  # whether figures of runs and tasks have the label `namespace` (SRV-003)


class McpTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tools for language models, over HTTP."""

    write: bool = False  # whether those that start and steer runs are offered too, to operators


class ServerSettings(msgspec.Struct, frozen=True):
    server: ServerTable = ServerTable()
    limits: RequestLimits = RequestLimits()
    route: list[PoolRoute] = []
    workers: WorkersTable = WorkersTable()
    pools: dict[str, PoolTable] = {}
    oidc: OidcTable | None = None
    feed: FeedTable = FeedTable()
    audit: AuditTable = AuditTable()
    hooks: list[HookSettings] = []
    traces: TracesTable = TracesTable()
    mcp: McpTable = McpTable()
    metrics: MetricsTable = MetricsTable()


def audit_keep(table: AuditTable) -> Instant:
    try:
        return read_span(table.keep)
    except ValueError as error:
        raise BadServerSettings(f"[audit] keep: {error}") from None


def proxy_networks(table: ServerTable) -> list[IPv4Network | IPv6Network]:
    try:
        return [ip_network(name, strict=False) for name in table.proxies]
    except ValueError as error:
        raise BadServerSettings(f"[server] proxies: {error}; expected addresses or networks") from None


def read_server_settings(environment: Mapping[str, str]) -> ServerSettings:
    """The tables of the settings file that are for a server."""
    name = environment.get(CONFIG, "").strip()
    if not name:
        return ServerSettings()
    try:
        tables: dict[str, Any] = tomllib.loads(Path(name).read_text("utf-8"))
        return msgspec.convert(tables, ServerSettings)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BadServerSettings(f"the settings file {name!r} ({CONFIG}) cannot be read: {error}") from None


def settings_in_force(environment: Mapping[str, str]) -> dict[str, Any]:
    """What a server reads from its environment and its settings file, by table."""
    from perdure.providers.policy import SERVER, read_key_files, read_policy, read_retention

    tables: dict[str, Any] = msgspec.to_builtins(read_server_settings(environment))
    policy, retention = read_policy(environment, SERVER), read_retention(environment)
    return {
        **tables,
        "policy": msgspec.to_builtins(policy),
        "retention": msgspec.to_builtins(retention),
        "secrets": {"key_file": read_key_files(environment)},
    }
