"""`serve`: an engine that stays, until Ctrl-C or SIGTERM."""

import argparse
import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from importlib import import_module
from math import ceil
from signal import SIGTERM
from typing import TYPE_CHECKING

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.document_files import read_applied
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.follow import listening
from perdure.cli.health import bind_health, health_page
from perdure.cli.interrupts import complete
from perdure.cli.log_output import FORMATS, log_to
from perdure.cli.open_engine import OUTPUT_CAPTURE
from perdure.cli.progress import progress_for
from perdure.cli.stdout import give_json
from perdure.cli.supervisor import ServerProcess, Supervisor
from perdure.cli.wait_for_store import opened
from perdure.engine.clock import SystemClock
from perdure.engine.decision_threads import collect_seldom
from perdure.engine.settings import Settings
from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values.values import SECOND
from perdure.views.administration.server_presence import others_serve
from perdure.views.resources.provider_list import declare_providers
from perdure.views.resources.resource_changes import apply_documents
from perdure.views.times import span
from perdure.wiring import Engine, languages, load_sources, open_store, serving_policy, url_without_password

if TYPE_CHECKING:
    from perdure.kernel.documents.validation import AppliedDocument
    from perdure.server.api_server import Address

EXAMPLES = """\
examples:
  perdure serve
  perdure serve --load ./tasks.py --db sqlite:///runs.db
  perdure serve --db postgresql://perdure@db/perdure --listen 127.0.0.1:0 --json
  perdure serve --listen 0.0.0.0:8420 --tls auto --tls-name perdure.example.org
  perdure serve --processes 4                 use four cores; see docs/guide/server.md

A server resumes runs without a live owner, decides waiting requests (StoryTriggers), runs the schedules of Impulses
that use the template `cron`, starts alerts about failed runs, and removes runs after their retention time. It answers
HTTP requests (see docs/reference/api.md), by default on 127.0.0.1:8420. The first start on a store makes an admin
token: it is printed on a terminal, otherwise written to a file that is named. Without TLS it listens on loopback only.

Several servers can share one store: each run is executed by one of them, and each scheduled time counts once. If the
database does not answer, the server waits for it, at the start (see --wait) and later. Errors that do not go away by
waiting, such as a wrong password, end the command at once.

Ctrl-C and SIGTERM stop the process, not the runs: tasks in flight may end (see --grace), everything else is handed
over. A second Ctrl-C stops immediately.
"""

OFF = ("off", 0)
DEFAULT_ADDRESS = ("127.0.0.1", 8420)
LOOKS_ON = "without an engine: runs are left to other servers on the store"
WAITS = "another server owns the file: this one answers requests, and executes the runs when that one has ended"
STOPPED = "stopped; the runs are durable. {goes_on}"
CONTINUE = "Continue with: perdure serve"
DATABASE_TIMEOUT = 365 * 86_400.0  # seconds: a database that is away is waited for, however long that takes


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_load(parser)
    parser.add_argument(
        "--health",
        metavar="PORT",
        type=a.port,
        help="answer http://127.0.0.1:PORT/healthz (200 if healthy, as /readyz of --listen) and /metrics (of streams)",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=a.address,
        help="where to answer requests; port 0 picks a free one; `off` for nowhere (default: 127.0.0.1:8420)",
    )
    parser.add_argument("--log-format", choices=FORMATS, default="text", help="of the lines on stderr (default: text)")
    parser.add_argument("--config", metavar="FILE", help="the settings file (default: $PERDURE_CONFIG)")
    parser.add_argument(
        "--apply", metavar="PATH", action="append", default=[], help="apply these resources at the start; repeatable"
    )
    parser.add_argument("--tls", metavar="auto|CERT,KEY", help="use TLS: own certificates, or two PEM files")
    parser.add_argument(
        "--tls-name",
        metavar="NAME",
        action="append",
        default=[],
        help="another name in the certificate, for --tls auto",
    )
    parser.add_argument(
        "--host", metavar="NAME", action="append", default=[], help="another host name that requests may use"
    )
    parser.add_argument(
        "--no-engine", action="store_true", help="answer requests and serve workers, and leave runs to other servers"
    )
    parser.add_argument(
        "--processes",
        metavar="N",
        type=a.processes,
        default=1,
        help="the number of processes, which share the runs and the address: about one for each core (default: 1)",
    )
    parser.add_argument("--no-console", action="store_true", help="serve the API alone, without the console under /")
    parser.add_argument("--insecure-listen", action="store_true", help="listen beyond this machine without TLS")
    parser.add_argument("--data", metavar="DIR", help="folder for certificates and the first token")
    parser.add_argument(
        "--anonymous",
        metavar="ROLE",
        choices=("viewer", "operator", "author", "admin"),
        help="requests from this machine need no token and have this role; on a loopback address only",
    )
    parser.add_argument(
        "--route",
        metavar="PROVIDER=POOL",
        action="append",
        default=[],
        type=a.route,
        help="workers of this pool do the tasks of this provider; repeatable (see docs/guide/workers.md)",
    )
    parser.add_argument(
        "--grace",
        metavar="DURATION",
        type=a.duration,
        default=10 * SECOND,
        help="how long tasks in flight may take to end when the process is stopped (default: 10s)",
    )
    parser.add_argument(
        "--lease",
        metavar="DURATION",
        type=a.lease,
        help="PostgreSQL: how long other servers wait before they replace one that is silent (default: 10s)",
    )
    parser.add_argument(
        "--wait",
        metavar="DURATION",
        type=a.duration,
        help="how long to wait at the start for a database that does not answer; 0 does not wait (default: no limit)",
    )


def perform(args: argparse.Namespace, talk: Console) -> int:
    if args.config:
        os.environ["PERDURE_CONFIG"] = args.config
    with serving_policy():
        address = _address(args, talk)
        try:
            if args.processes == 1:
                return complete(_serve(address, args, talk), stopped=Exit.OK)
            return _be_several(address, args, talk)
        finally:
            if address is not None:
                address.socket.close()


def _be_several(address: "Address | None", args: argparse.Namespace, talk: Console) -> int:
    """This process becomes the supervisor, and returns in every process that it has started."""
    from perdure.server.connection_counts import ConnectionCounts

    languages()  # what is imported before the processes begin, they have together
    counts = ConnectionCounts(args.processes)
    if address is not None:
        address.counts = counts
    if args.health is not None:
        args.health = bind_health(args.health)
    supervisor = Supervisor(
        args.processes,
        counts,
        talk.always,
        lambda: _tell_begin(address, args, talk),
        forwards_hangup=args.tls is not None,
    )
    process = supervisor.run()
    if isinstance(process, int):
        if process == Exit.OK:
            talk.always(STOPPED.format(goes_on=CONTINUE))
        return process
    return complete(_serve(address, args, talk, process), stopped=Exit.OK, signals={SIGTERM: Exit.TERMINATED})


def _tell_begin(address: "Address | None", args: argparse.Namespace, talk: Console) -> None:
    several = "" if args.processes == 1 else f" with {args.processes} processes"
    talk.always(f"serving {url_without_password(args.db)}{several}; stop with Ctrl-C")
    if address is not None:
        _tell_address(address, args, talk)


def _tell_address(address: "Address", args: argparse.Namespace, talk: Console) -> None:
    talk.always(f"listening on {address.url}")
    if args.json:
        give_json({"url": address.url, "pid": os.getpid()})


async def _serve(
    address: "Address | None", args: argparse.Namespace, talk: Console, process: ServerProcess | None = None
) -> int:
    log_to(talk, args.verbose)
    load_sources(args.load)
    import_module(OUTPUT_CAPTURE).install_capture()
    routes = read_routes(args.route)
    applied = read_applied(args.apply) if process is None or process.is_first else []
    return await _serve_at(address, applied, routes, args, talk, process)


async def _serve_at(
    address: "Address | None",
    applied: "Sequence[AppliedDocument]",
    routes: dict[str, str],
    args: argparse.Namespace,
    talk: Console,
    process: ServerProcess | None,
) -> int:
    from perdure.server.limits import read_server_settings

    settings = Settings(
        serves=True,
        drives=not args.no_engine,
        commit_tries=20,
        grace=args.grace / SECOND,
        routes=routes,
        processes=args.processes,
        tasks_in_flight=ceil(Settings().tasks_in_flight / args.processes),
        recall_grace=read_server_settings(os.environ).workers.cancel_grace_s,
    )
    lease = None if args.lease is None else args.lease / SECOND
    most = None if args.wait is None else args.wait / SECOND
    clock = SystemClock()
    group = None if process is None else process.group
    open_the_store = partial(open_store, args.db, clock, lease=lease, timeout=DATABASE_TIMEOUT, group=group)
    async with health_page(args.health) as page:
        engine = Engine(
            await opened(open_the_store, args.db, most, talk), clock=clock, settings=settings, recover=False
        )
        engine.runtime.scheduler.partitions.notify = talk.say
        goes_on = CONTINUE
        try:
            async with engine, AsyncExitStack() as api:
                page.engine = engine
                with listening(engine, progress_for(talk)):
                    if applied:
                        await apply_documents(engine, applied, "")
                    if process is None:
                        _tell_begin(None, args, talk)
                    if engine.runtime.is_guest and (process is None or process.is_first):
                        talk.always(LOOKS_ON if args.no_engine else WAITS)
                    if address is not None:
                        await _begin_to_answer(api, engine, address, args, talk, process)
                    if process is not None:
                        process.follow_orders(engine.runtime.scheduler.partitions.look_around)
                        process.is_ready()
                    collect_seldom()
                    try:
                        await _stay(engine, args, talk, api)
                    except asyncio.CancelledError:
                        if engine.runtime.is_guest or await others_serve(engine):
                            goes_on = "The other servers continue them."
                        raise
        except asyncio.CancelledError:
            if process is None:
                talk.always(STOPPED.format(goes_on=goes_on))
            raise
    return Exit.OK


def read_routes(flags: list[tuple[str, str]]) -> dict[str, str]:
    """Provider → pool: those of the settings file, and these. What only a pool knows is declared."""
    from perdure.server.limits import read_server_settings

    written = read_server_settings(os.environ).route
    declare_providers({route.provider: route.schema for route in written} | {provider: None for provider, _ in flags})
    return {route.provider: route.pool for route in written} | dict(flags)


def _address(args: argparse.Namespace, talk: Console) -> "Address | None":
    """Where requests are answered, taken before anything is opened; None: nowhere.

    The default address is given up if another server of this machine has it.
    """
    if args.listen == OFF:
        return None
    try:
        from perdure.server.api_server import Address, ApiOptions
        from perdure.server.listener import AddressUnusable
    except ImportError as error:
        if args.listen is not None:
            raise BadUsage(
                f"--listen needs a package that is not installed: {error.name}", hint="pip install 'perdure[server]'"
            ) from None
        talk.say("requests are not answered: that needs pip install 'perdure[server]'")
        return None
    from perdure.server.hook_settings import read_hooks
    from perdure.server.limits import audit_keep, proxy_networks, read_server_settings
    from perdure.server.trace_export import trace_hooks
    from perdure.views.administration.access_tokens import AccessRole

    settings = read_server_settings(os.environ)
    host, port = args.listen or DEFAULT_ADDRESS
    options = ApiOptions(
        host,
        port,
        args.db,
        args.grace / SECOND,
        anonymous=None if args.anonymous is None else AccessRole(args.anonymous),
        tls=args.tls,
        tls_names=args.tls_name,
        hosts=[*args.host, *settings.server.hosts],
        proxies=proxy_networks(settings.server),
        data=args.data,
        is_open=args.insecure_listen,
        limits=settings.limits.divided(args.processes),
        worker_lease=settings.workers.lease,
        oidc=settings.oidc,
        drain_delay=settings.server.drain_delay,
        feed_keep=settings.feed.keep,
        audit_keep=audit_keep(settings.audit),
        hooks=[*read_hooks(settings.hooks), *trace_hooks(settings.traces, os.environ)],
        has_console=not args.no_console,
        write_tools=settings.mcp.write,
        metrics_have_namespaces=settings.metrics.namespaces,
        pools_with_secrets=frozenset(name for name, pool in settings.pools.items() if pool.secrets == "send"),
    )
    try:
        return Address(options)
    except AddressUnusable:
        if args.listen is not None or args.json:
            raise
        talk.say(f"requests are not answered: another program listens on {host}:{port} (see --listen)")
        return None


async def _begin_to_answer(
    api: AsyncExitStack,
    engine: Engine,
    address: "Address",
    args: argparse.Namespace,
    talk: Console,
    process: ServerProcess | None,
) -> None:
    try:
        await api.enter_async_context(_answering(engine, address, args, talk, process))
    except asyncio.CancelledError:
        engine.store.limit_timeout(args.grace / SECOND)  # whoever waits for a store that is away gives up then
        raise


@asynccontextmanager
async def _answering(
    engine: Engine, address: "Address", args: argparse.Namespace, talk: Console, process: ServerProcess | None
) -> AsyncIterator[None]:
    from perdure.server.api_server import serving_api

    say = talk.always if process is None or process.is_first else lambda line: None  # all would say the same
    async with serving_api(engine, address, say):
        if process is None:
            _tell_address(address, args, talk)
        yield


async def _serve_when_driving(engine: Engine, talk: Console) -> None:
    was_waiting = engine.runtime.is_guest
    await engine.runtime.drives()
    if was_waiting:
        talk.always("the server that owned the file has ended: this one executes the runs now")
    await engine.run_services(talk.say)


async def _stay(engine: Engine, args: argparse.Namespace, talk: Console, api: AsyncExitStack) -> None:
    services = asyncio.ensure_future(_serve_when_driving(engine, talk))
    try:
        await asyncio.shield(services)
    except asyncio.CancelledError:
        engine.store.limit_timeout(
            args.grace / SECOND
        )  # first of all: whoever waits for a store that is away gives up then
        services.cancel()
        await api.aclose()  # whoever waits for an answer gets one before the runs are handed over
        count = engine.runtime.tasks_in_flight
        if count:
            talk.always(f"stopping; {count} task{'' if count == 1 else 's'} in flight may take {span(args.grace)}")
        if not await engine.runtime.leave():
            talk.say("some tasks have not ended; they are delivered again")
        engine.store.limit_timeout()
        with suppress(asyncio.CancelledError, PerdureError):
            await services
        raise
