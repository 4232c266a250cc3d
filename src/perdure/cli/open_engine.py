"""How a verb gets at the engine: what is loaded first, and which store is opened."""

import argparse
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module

from perdure.cli.console import Console
from perdure.cli.log_output import log_to
from perdure.cli.server_choice import refuse_server, server_access
from perdure.engine.client import Client
from perdure.engine.clock import SystemClock
from perdure.engine.settings import Settings
from perdure.engine.tasks.executor import NullExecutor
from perdure.views.access import Access, StoreAccess
from perdure.views.errors import StoreMissing
from perdure.views.runs.progress_events import spell_step
from perdure.wiring import Engine, Observer, languages, load_sources, open_store

OUTPUT_CAPTURE = "perdure.workers.output_capture"  # this process is ours: what tasks print goes into their runs


def open_engine(
    args: argparse.Namespace,
    talk: Console,
    *,
    must_exist: bool = False,
    settings: Settings | None = None,
    lease: float | None = None,
    timeout: float | None = None,
) -> Engine:
    """An engine that does the work itself, with the providers that were asked for.

    Where nothing is to be followed it begins no task: its process is about to end.
    """
    refuse_server(args)
    log_to(talk, args.verbose)
    load_sources(args.load)
    if hands_out_tasks := not getattr(args, "detach", False):
        import_module(OUTPUT_CAPTURE).install_capture(lambda path, line: talk.say(f"  {spell_step(path)}: {line}"))
    clock = SystemClock()
    store = open_store(args.db, clock, must_exist=must_exist, lease=lease, timeout=timeout)
    hands = None if hands_out_tasks else NullExecutor()
    return Engine(store, clock=clock, hands=hands, settings=settings, recover=False)


def open_access(args: argparse.Namespace, talk: Console) -> "AbstractAsyncContextManager[Access]":
    """Runs of a store, or of the server that the command is for."""
    if args.choice is None:
        return StoreAccess(open_observer(args, talk))
    log_to(talk, args.verbose)
    return server_access(args, talk.say)


def open_observer(args: argparse.Namespace, talk: Console) -> Observer:
    refuse_server(args)
    log_to(talk, args.verbose)
    return Observer(args.db)


def open_client(args: argparse.Namespace, talk: Console, *, must_exist: bool = False) -> Client:
    """The store without an engine: for the catalog, which may be written before anything has ever been run."""
    refuse_server(args)
    log_to(talk, args.verbose)
    clock = SystemClock()
    return Client(open_store(args.db, clock, must_exist=must_exist), languages(), clock, None)


@asynccontextmanager
async def store_if_any(args: argparse.Namespace, talk: Console) -> AsyncIterator[Callable[[], Client | None]]:
    """The store, opened when it is first asked for; None where there is none. A look creates nothing."""
    opened: list[Client | None] = []

    def look() -> Client | None:
        if args.choice is not None:  # a server has the catalog, and checks what is sent to it
            return None
        if not opened:
            try:
                opened.append(open_client(args, talk, must_exist=True))
            except StoreMissing:
                opened.append(None)
        return opened[0]

    try:
        yield look
    finally:
        for client in opened:
            if client is not None:
                await client.store.close()
