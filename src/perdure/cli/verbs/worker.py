"""`worker`: does tasks of pools for a server elsewhere, until Ctrl-C or SIGTERM."""

import argparse
import asyncio
import os
import socket
from importlib import import_module
from pathlib import Path

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.log_output import FORMATS, log_to
from perdure.cli.open_engine import OUTPUT_CAPTURE
from perdure.cli.stdout import give_json
from perdure.engine.clock import SystemClock
from perdure.engine.decision_threads import collect_seldom
from perdure.kernel.json_values.values import SECOND
from perdure.views.resources.provider_list import known_providers
from perdure.wiring import languages, load_sources, local_executor, pool_worker, serving_policy, stream_performer

EXAMPLES = """\
examples:
  perdure token create --name gpu-1 --role worker --pool gpu > token     on the server
  perdure worker --server http://127.0.0.1:8420 --token @token
  perdure worker --server https://perdure.example.org --token @token --pool gpu --load ./train.py --slots 4

The worker asks a server for tasks that were sent to its pools (by `serve --route`, or by documents), does them in this
process, and answers each one once. Secrets of tasks come from this machine, or from the server if it sends them to the
pool. The policy of a server applies: code in documents is not run, unless [policy] allows it. If the server does not
answer, the worker tries again. Engrams that are loaded with --load do streaming steps too, each in a connection of its
own.

On Ctrl-C and SIGTERM the worker takes no more tasks, finishes what it has within --grace, and gives the rest back.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_load(parser)
    parser.add_argument(
        "--server", metavar="URL", default=os.environ.get("PERDURE_SERVER"), help="the server's address"
    )
    parser.add_argument("--token", metavar="T|@FILE", help="an access token with the role worker (or $PERDURE_TOKEN)")
    parser.add_argument(
        "--pool", metavar="P", action="append", default=[], help="a pool; may be repeated (default: those of the token)"
    )
    parser.add_argument("--slots", metavar="N", type=int, default=8, help="tasks at a time (default: 8)")
    parser.add_argument("--name", metavar="NAME", help="what the worker is called (default: host and process)")
    parser.add_argument("--ca", metavar="FILE", help="the authority of the server's certificate (see `perdure ca`)")
    parser.add_argument("--log-format", choices=FORMATS, default="text", help="of the lines on stderr (default: text)")
    parser.add_argument("--config", metavar="FILE", help="the settings file (default: $PERDURE_CONFIG)")
    parser.add_argument(
        "--grace",
        metavar="DURATION",
        type=a.duration,
        default=10 * SECOND,
        help="how long tasks in hand may take to end when the process is stopped (default: 10s)",
    )


def perform(args: argparse.Namespace, talk: Console) -> int:
    if args.config:
        os.environ["PERDURE_CONFIG"] = args.config
    args.server = args.server or os.environ.get("PERDURE_SERVER")
    if not args.server:
        raise BadUsage("a worker needs the address of a server", hint="perdure worker --server URL --token @FILE")
    if args.slots < 1:
        raise BadUsage("--slots must be 1 or more")
    token = _token(args.token or os.environ.get("PERDURE_TOKEN", ""))
    with serving_policy():
        return complete(_work(args, token, talk), stopped=Exit.OK)


def _token(text: str) -> str:
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadUsage(f"the token cannot be read: {error}") from None
    if not text.strip():
        raise BadUsage("a worker needs an access token", hint="perdure token create --role worker --pool P --name N")
    return text.strip()


async def _work(args: argparse.Namespace, token: str, talk: Console) -> int:
    log_to(talk, args.verbose)
    load_sources(args.load)
    import_module(OUTPUT_CAPTURE).install_capture(None)

    from perdure.server.worker_protocol.stream_client import StreamWorker
    from perdure.server.worker_protocol.worker_client import ServerSource

    clock, dialects = SystemClock(), languages()
    source = ServerSource(
        args.server,
        token,
        worker=args.name or f"{socket.gethostname()}-{os.getpid()}",
        pools=args.pool,
        slots=args.slots,
        known=known_providers(),
        languages=dialects,
        now=clock.now,
        ca=args.ca,
        say=talk.say,
    )
    await source.open()
    if not source.pools:
        raise BadUsage("the token names no pool", hint="Name one with --pool.")
    executor = local_executor(clock, source.document, dialects, sent=source.secrets_for)
    talk.always(f"working for {', '.join(source.pools)} of {args.server}; stop with Ctrl-C")
    if args.json:
        give_json({"server": args.server, "pools": source.pools, "pid": os.getpid()})
    worker = pool_worker(source, executor, clock, source.worker, args.slots)
    providers, perform = stream_performer()
    streams = StreamWorker(
        args.server,
        token,
        worker=source.worker,
        pools=source.pools,
        providers=providers,
        perform=perform,
        ca=args.ca,
        say=talk.always,
    )
    collect_seldom()
    streaming = asyncio.ensure_future(streams.run())
    stopping = asyncio.Event()
    working = asyncio.ensure_future(worker.run(stopping, args.grace / SECOND))
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        stopping.set()
        in_hand = worker.in_hand + streams.in_hand
        if in_hand:
            talk.always(f"stopping; {in_hand} tasks in hand may end")
        streaming.cancel()
        await streams.leave(args.grace / SECOND)
        left = await working
        talk.always(f"stopped{f'; {left} tasks were given back' if left else ''}")
        raise
    finally:
        streaming.cancel()
        await source.close()
        await executor.close()
    return Exit.OK
