"""`serve`: an engine that stays, until Ctrl-C or SIGTERM."""

import argparse
import asyncio
from contextlib import suppress

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.follow import listening
from perdure.cli.health import health_page
from perdure.cli.interrupts import complete
from perdure.cli.log_output import log_to
from perdure.cli.open_engine import load_sources
from perdure.cli.progress import progress_for
from perdure.cli.server_presence import others_serve
from perdure.cli.wait_for_store import opened
from perdure.engine.clock import SystemClock
from perdure.engine.settings import Settings
from perdure.kernel.errors import PerdureError
from perdure.kernel.values import SECOND
from perdure.providers.policy import serving_policy
from perdure.stores.protocol import Store
from perdure.stores.store_urls import without_password
from perdure.views.times import span
from perdure.wiring import Engine, open_store

EXAMPLES = """\
examples:
  perdure serve
  perdure serve --load ./tasks.py --db sqlite:///runs.db
  perdure serve --db postgresql://perdure@db/perdure --health 8081

Takes up runs that no live process owns, decides requests that wait (StoryTriggers), keeps the schedules of Impulses of
the template `cron`, and removes Stories' runs whose retention is over. Nothing listens on the network, but for the
health page on loopback if you ask for it. Several may serve one store: they share the runs, each is driven by one of
them, and a strike of a schedule counts once. A database that does not answer is waited for, at the start (--wait) and
later; what waiting cannot mend, such as a wrong password, is an error at once. Ctrl-C and SIGTERM stop the process, not
the runs: what is in flight may end, the rest is handed over; a second Ctrl-C does not wait.
"""

PATIENCE = 365 * 86_400.0  # seconds: a database that is away is waited for, however long that takes


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_load(parser)
    parser.add_argument(
        "--health", metavar="PORT", type=a.port, help="answer http://127.0.0.1:PORT/healthz: 200 when all is well"
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
        help="on PostgreSQL: how long others wait before they take over from a server that fell silent (default: 10s)",
    )
    parser.add_argument(
        "--wait",
        metavar="DURATION",
        type=a.duration,
        help="how long to wait at the start for a database that does not answer; 0: not at all"
        " (default: as long as it takes)",
    )


def perform(asked: argparse.Namespace, talk: Console) -> int:
    with serving_policy():
        return complete(_serve(asked, talk))


async def _serve(asked: argparse.Namespace, talk: Console) -> int:
    settings = Settings(serves=True, commit_tries=20, grace=asked.grace / SECOND)
    lease = None if asked.lease is None else asked.lease / SECOND
    most = None if asked.wait is None else asked.wait / SECOND
    log_to(talk, asked.verbose)
    load_sources(asked.load)
    clock = SystemClock()

    def open() -> Store:
        return open_store(asked.db, clock, lease=lease, patience=PATIENCE)

    async with health_page(asked.health) as page:
        engine = Engine(await opened(open, asked.db, most, talk), clock=clock, settings=settings, recover=False)
        engine.runtime.scheduler.partitions.tell = talk.say
        goes_on = "Continue with: perdure serve"
        try:
            async with engine:
                page.engine = engine
                with listening(engine, progress_for(talk)):
                    talk.always(f"serving {without_password(asked.db)}; stop with Ctrl-C")
                    try:
                        await _stay(engine, asked, talk)
                    except asyncio.CancelledError:
                        if await others_serve(engine):
                            goes_on = "The other servers continue them."
                        raise
        except asyncio.CancelledError:
            talk.always(f"stopped; the runs are durable. {goes_on}")
            raise
    return Exit.OK


async def _stay(engine: Engine, asked: argparse.Namespace, talk: Console) -> None:
    from perdure.services.story.triggers.service import TriggerService

    service = asyncio.ensure_future(TriggerService(engine, say=talk.say).run())
    try:
        await asyncio.shield(service)
    except asyncio.CancelledError:
        engine.store.limit_patience(
            asked.grace / SECOND
        )  # first of all: whoever waits for a store that is away gives up then
        service.cancel()
        count = engine.runtime.tasks_in_flight
        if count:
            talk.always(f"stopping; {count} task{'' if count == 1 else 's'} in flight may take {span(asked.grace)}")
        if not await engine.runtime.leave():
            talk.say("not all tasks have ended; those are delivered again")
        engine.store.limit_patience()
        with suppress(asyncio.CancelledError, PerdureError):
            await service
        raise
