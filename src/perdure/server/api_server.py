"""Puts the server together: engine, access, audit log, routes and the address they answer on."""

import asyncio
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from copy import copy
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import perdure
from perdure.engine.clock import until_beat
from perdure.engine.private_files import write_private
from perdure.engine.resources.catalog import Catalog
from perdure.engine.resources.document_validation import DocumentValidator
from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.providers.policy import policy_for_api, policy_in_force, refusal_for_api
from perdure.server.application import ApiServer
from perdure.server.authentication import Authentication, is_loopback, listened_hosts
from perdure.server.connection_counts import ConnectionCounts
from perdure.server.console_files import read_console
from perdure.server.data_folder import data_folder
from perdure.server.group_figures import GroupFigures
from perdure.server.hook_settings import Hook
from perdure.server.limits import OidcTable, RequestLimits
from perdure.server.listener import CountingSocket, bind, listening
from perdure.server.oidc import OidcProvider
from perdure.server.routes import ROUTES
from perdure.server.run_hooks import RunHooks
from perdure.server.tls import OwnCertificate, ServerCertificate, own_names
from perdure.views.administration.access_tokens import FIRST, AccessRole, create_first_token
from perdure.views.administration.audit_log import KEPT, NO_SEAL, AuditLog, audit_head
from perdure.views.administration.server_metrics import ServerMetrics
from perdure.views.administration.server_settings import NotedSettings, ServerSettingsLog
from perdure.views.errors import BadRequest
from perdure.views.runs.live_events import LiveEvents
from perdure.views.runs.run_changes import ChangeFeed
from perdure.wiring import Engine, language_metrics, languages

if TYPE_CHECKING:
    from perdure.server.kubernetes.facade_routes import KubernetesFacade

RENEW_EVERY = 3_600.0  # seconds between two looks at the certificate
LOOK_AT_CREDENTIALS_EVERY = 5.0  # seconds
OWNER_TIMEOUT = 5.0  # seconds that a request waits for the decision of another server
FIGURES_EVERY, FIGURES_AT_LATEST = 0.5, 5.0  # seconds after something was counted, and where nothing is
NOTE_EVERY = 2.0  # seconds after which it is written down which workers were seen


@dataclass(frozen=True, slots=True)
class ApiOptions:
    host: str
    port: int
    store: str
    grace: float  # seconds
    anonymous: AccessRole | None = None
    tls: str | None = None  # auto, or CERT,KEY
    tls_names: Sequence[str] = ()
    hosts: Sequence[str] = ()
    data: str | None = None
    is_open: bool = False  # may listen beyond this machine without TLS
    limits: RequestLimits = field(default_factory=RequestLimits)
    worker_lease: float = 60.0  # seconds
    oidc: OidcTable | None = None
    drain_delay: float = 0.0  # seconds
    proxies: Sequence[IPv4Network | IPv6Network] = ()
    feed_keep: float = 600.0  # seconds
    audit_keep: Instant = KEPT
    hooks: Sequence[Hook] = ()
    has_console: bool = True
    write_tools: bool = False
    metrics_have_namespaces: bool = False
    pools_with_secrets: frozenset[str] = frozenset()


class Address:
    """Where the server will listen; taken before anything else, so that a mistake is told at once."""

    def __init__(self, options: ApiOptions) -> None:
        if options.anonymous is not None and not is_loopback(options.host):
            raise BadRequest(
                f"--anonymous is for loopback addresses only, and {options.host} is none",
                hint="Leave it out, and make tokens with `perdure token create`.",
            )
        if options.tls is None and not options.is_open and not is_loopback(options.host):
            raise BadRequest(
                f"without TLS the server listens on loopback only, and {options.host} is not",
                hint="Use --tls auto or --tls CERT,KEY; or --insecure-listen where something else encrypts.",
            )
        self.options = options
        self.socket: CountingSocket = bind(options.host, options.port)
        self.port: int = self.socket.getsockname()[1]
        self.counts: ConnectionCounts | None = None  # of the processes that listen here together

    @property
    def url(self) -> str:
        host = self.options.host.strip("[]")
        name = f"[{host}]" if ":" in host else host
        return f"{'http' if self.options.tls is None else 'https'}://{name}:{self.port}"


def with_api_policy(engine: Engine) -> Engine:
    """The same engine for documents that come through the API, to which the policy for them applies."""
    other = copy(engine)
    other.languages = languages(refusal=refusal_for_api)
    other.validator = DocumentValidator(other.languages, other.known)
    other.catalog = Catalog(engine.store, other.languages, other.validator, engine.clock.wall, from_api=True)
    other.from_api = True
    return other


@asynccontextmanager
async def serving_api(engine: Engine, address: Address, say: Callable[[str], None]) -> AsyncIterator[ApiServer]:
    """Answers requests inside."""
    options = address.options
    certificate = _certificate(options)
    name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    provider = None if options.oidc is None else OidcProvider(options.oidc)
    engine.answer_timeout = OWNER_TIMEOUT
    authentication = Authentication(engine, options.anonymous, provider, options.proxies)
    server = ApiServer(
        engine,
        with_api_policy(engine),
        authentication,
        AuditLog(engine, name, options.audit_keep),
        LiveEvents(engine),
        ChangeFeed(engine, authentication.tokens.is_valid, options.feed_keep),
        ROUTES,
        _facade(engine),
        name,
        perdure.__version__,
        listened_hosts(options.host, [*options.hosts, *options.tls_names]),
        options.limits,
        is_tls=certificate is not None,
        metrics=ServerMetrics(
            engine.runtime, *language_metrics(engine.clock), has_namespaces=options.metrics_have_namespaces
        ),
        store_url=options.store,
        routes_to_pools=engine.runtime.routes,
        console=read_console() if options.has_console else read_console(None),
        offers_write_tools=options.write_tools,
        group=address.counts,
    )
    server.secrets.pools = options.pools_with_secrets
    policy = {**msgspec.to_builtins(policy_in_force()), "code_of_api_documents": policy_for_api().code}
    own = NotedSettings(name, perdure.__version__, policy, dict(engine.runtime.routes))
    server.settings = ServerSettingsLog(engine, own, say)
    server.tasks.lease_for = int(options.worker_lease * SECOND)
    authentication.sessions.listen(address.port, is_tls=certificate is not None)
    await _tell_first_token(server, address, say)
    if (head := await audit_head(engine)) != NO_SEAL:
        say(f"the audit log ends with {head} (keep this to detect a truncated log: perdure audit verify --help)")
    if options.anonymous is not None:
        say(f"requests from this machine need no token: they have the role {options.anonymous.value}")
    await server.authentication.tokens.read()
    server.live.open()
    await server.changes.open()
    hooks = RunHooks(engine, options.hooks, say)
    await hooks.note()
    await server.changes.open()  # while there are hooks, it stays open
    work = [server.authentication.tokens.keep(), _sealing(server), _noting_workers(server), server.changes.run()]
    work += [hooks.run(), _watching_credentials(engine)]
    if server.group is not None:
        work.append(_writing_figures(server, server.group.figures))
    if certificate is not None:
        work.append(_renewing(certificate, say))
    background = [asyncio.ensure_future(coroutine) for coroutine in work]
    context = None if certificate is None else certificate.context
    try:
        async with listening(server, address.socket, options.grace, context, options.drain_delay, address.counts):
            yield server
    finally:
        await server.presence.write()
        await server.settings.note(has_left=True)
        server.live.close()
        if server.group is not None:
            server.group.figures.write(server.own_metrics())
        if server.metrics is not None:
            server.metrics.stop()
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        try:
            await server.audit.seal(at_end=True)
        except PerdureError:
            say("the last refusals could not be written to the audit log")


def _facade(engine: Engine) -> "KubernetesFacade":
    """Imported here: only a server needs it."""
    from perdure.server.kubernetes.facade_routes import FACADE_ROUTES, KubernetesFacade

    return KubernetesFacade(FACADE_ROUTES, engine)


def _certificate(options: ApiOptions) -> ServerCertificate | None:
    if options.tls == "auto":
        return OwnCertificate(data_folder(options.data, options.store), own_names(options.host, options.tls_names))
    if options.tls is not None:
        certificate, _, key = options.tls.partition(",")
        return ServerCertificate(Path(certificate), Path(key or certificate))
    return None


async def _renewing(certificate: ServerCertificate, say: Callable[[str], None]) -> None:
    """Read it again on SIGHUP, and now and then: one of our own is renewed when a third of its time is left."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, asked.set)
    try:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RENEW_EVERY):
                    await asked.wait()
            was_asked = asked.is_set()
            asked.clear()
            try:
                await asyncio.to_thread(certificate.read)
            except (PerdureError, OSError, ValueError) as error:
                say(f"the certificate stays as it is: {error}")
            else:
                if was_asked:
                    say("the certificate was read again")
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


async def _noting_workers(server: ApiServer) -> None:
    while True:
        await server.settings.note()
        await asyncio.sleep(until_beat(NOTE_EVERY))
        await server.presence.write()


async def _writing_figures(server: ApiServer, figures: GroupFigures) -> None:
    """For the other processes of this server, whichever is asked: soon after something was counted, else seldom."""
    assert server.metrics is not None
    counted = server.metrics.counted
    while True:
        counted.clear()
        figures.write(server.own_metrics())
        with suppress(TimeoutError):
            async with asyncio.timeout(until_beat(FIGURES_AT_LATEST)):
                await counted.wait()
                await asyncio.sleep(FIGURES_EVERY)


async def _watching_credentials(engine: Engine) -> None:
    """Others change them too, and what runs may have used is masked."""
    while True:
        await asyncio.sleep(until_beat(LOOK_AT_CREDENTIALS_EVERY))
        with suppress(PerdureError):
            await engine.credentials.refresh()


async def _sealing(server: ApiServer) -> None:
    while True:
        try:
            await server.audit.keep()
        except PerdureError:
            await asyncio.sleep(1)  # a store that is away


async def _tell_first_token(server: ApiServer, address: Address, say: Callable[[str], None]) -> None:
    """Printed once, where a person looks; else written into files, so that no log keeps it.

    With it the address that logs a browser in, once. The code is behind the `#`: it reaches no log and no other site.
    """
    engine, options, sessions = server.engine, address.options, server.authentication.sessions
    if sys.stderr.isatty():
        if token := await create_first_token(engine):
            say(f"the first token, role admin; it is not shown again: {token}")
            code = await sessions.make_code(FIRST)
            say(f"the console logs in once, within ten minutes, with {address.url}/#login={code}")
        return
    path = data_folder(options.data, options.store) / f"{FIRST}-token"
    scratch = path.with_name(f"{path.name}.{os.getpid()}")  # another server may win
    if await create_first_token(engine, lambda token: write_private(scratch, f"{token}\n".encode())):
        scratch.replace(path)
        code = await sessions.make_code(FIRST)
        write_private(path.with_name("console-address"), f"{address.url}/#login={code}\n".encode())
        say(f"the first token, role admin, is in {path}; beside it an address that logs a browser in, once")
    else:
        scratch.unlink(missing_ok=True)
