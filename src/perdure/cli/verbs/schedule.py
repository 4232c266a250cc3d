"""`schedule`: the schedules of Impulses: list them, see their next times, pause them, start times of the past."""

import argparse
import secrets
from datetime import datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.main import EXIT_CODES, Formatter
from perdure.cli.open_engine import open_access, open_client
from perdure.cli.server_choice import server_access
from perdure.cli.stdout import give_json, give_text
from perdure.cli.tables import Column, table
from perdure.server.handlers.schedule_handlers import SCHEDULES, BackfillBody, ScheduleQuery, backfill_json
from perdure.views.administration.audit_log import audited
from perdure.views.administration.server_presence import is_served
from perdure.views.resources.schedule_json import in_zone, schedule_json
from perdure.views.times import read_instant
from perdure.wiring import schedules

EXAMPLES = """\
examples:
  perdure schedule list                               the schedules, their next time and their last result
  perdure schedule next nightly 5                     the next five times
  perdure schedule pause nightly --reason "moving the warehouse"
  perdure schedule unpause nightly
  perdure schedule backfill nightly --from 2026-05-01 --to 2026-05-31

A schedule is part of an Impulse of the template `cron`. NAME is the name of the Impulse if it has one schedule, or
IMPULSE/SCHEDULE. `perdure serve` starts the runs. `perdure schedule ACTION --help` explains an action.
"""

ACTIONS = {
    "list": "list schedules with their next time and their last result",
    "next": "print the next times of a schedule",
    "pause": "start nothing until the schedule is unpaused",
    "unpause": "let a paused schedule continue",
    "backfill": "start runs for past times",
}

EXPLANATIONS = {
    "list": """\
examples:
  perdure schedule list
  perdure schedule list -A --json
""",
    "next": """\
examples:
  perdure schedule next nightly          the next time
  perdure schedule next nightly/night 10 --json

A time is shown as a clock in the schedule's zone shows it. `starts` differs from it if the schedule has a jitter.
""",
    "pause": """\
examples:
  perdure schedule pause nightly --reason "moving the warehouse" --by Ada

Runs that have started continue. Times that pass meanwhile are not started later, whatever the catch-up window; start
them with `perdure schedule backfill`.
""",
    "unpause": """\
examples:
  perdure schedule unpause nightly

Times that passed during the pause are not started; start them with `perdure schedule backfill`.
""",
    "backfill": """\
examples:
  perdure schedule backfill nightly --from 2026-05-01 --to 2026-05-31 --dry-run
  perdure schedule backfill nightly --from 2026-05-01T00:00+02:00 --to 2026-05-08
  perdure schedule backfill nightly --from 7d --to 1h --overlap allow

FROM and TO belong to the range. A time without a zone is one of the schedule's zone; `7d` is seven days ago. All times
of the range are recorded together and started by `perdure serve`, one after the other unless the schedule allows
overlap. A time that has a run keeps it: it is not started again. At most 10,000 times at once.
""",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    for name, line in ACTIONS.items():
        action = actions.add_parser(
            name,
            help=line,
            description=line[0].upper() + line[1:] + ".",
            formatter_class=Formatter,
            allow_abbrev=False,
        )
        _configure_action(name, action)
        a.add_shared_again(action)
        action.epilog = f"{EXPLANATIONS[name]}\n{EXIT_CODES}"


def _configure_action(name: str, parser: argparse.ArgumentParser) -> None:
    if name != "list":
        parser.add_argument("name", metavar="NAME", help="IMPULSE, or IMPULSE/SCHEDULE")
    if name == "next":
        parser.add_argument("count", metavar="N", nargs="?", type=_count, default=1, help="how many (default: 1)")
    if name == "pause":
        parser.add_argument("--reason", metavar="TEXT", default="", help="why; kept with the schedule")
        parser.add_argument("--by", metavar="WHO", default="", help="who decided this; kept with the schedule")
    if name == "backfill":
        parser.add_argument("--from", dest="begin", metavar="TIME", required=True, help="the first time of the range")
        parser.add_argument("--to", dest="end", metavar="TIME", required=True, help="the last time or day of the range")
        parser.add_argument(
            "--overlap",
            choices=("allow", "queue"),
            help="all at once, or one after the other (default: as the schedule says)",
        )
        parser.add_argument("--dry-run", action="store_true", help="only list the times, record nothing")
    namespaces = a.add_namespace(parser, "namespace of the Impulse (default: default)")
    if name == "list":
        namespaces.add_argument("-A", "--all-namespaces", action="store_true", help="schedules of all namespaces")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 1_000):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1000")
    return int(text)


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete(_ACTIONS[args.action](args, talk))


async def _list(args: argparse.Namespace, talk: Console) -> int:
    query = ScheduleQuery(namespace=None if args.all_namespaces else args.namespace, all_namespaces=args.all_namespaces)
    async with open_access(args, talk) as access:
        views = await access.ask(SCHEDULES, query)
    if args.json:
        give_json(views)
        return Exit.OK
    if not views:
        talk.say("no schedules found; an Impulse of the template `cron` has some")
        return Exit.OK
    columns = [
        *([Column("NAMESPACE")] if args.all_namespaces else []),
        Column("NAME", may_shrink=True),
        Column("CRON"),
        Column("ZONE", may_go=True),
        Column("STARTS", may_shrink=True),
        Column("NEXT"),
        Column("LAST"),
    ]
    rows = [
        [
            *([(view["namespace"], "")] if args.all_namespaces else []),
            (view["name"], ""),
            (view["cron"], ""),
            (view["timezone"], ""),
            (view["starts"], ""),
            _next_cell(view),
            _last_cell(view),
        ]
        for view in views
    ]
    give_text("\n".join(table(columns, rows)))
    return Exit.OK


def _next_cell(view: dict[str, Any]) -> tuple[str, str]:
    if not view["enabled"]:
        return "disabled", "dim"
    if view["paused"]:
        return "paused", "yellow"
    if not view["next"]:
        return "never", "yellow"
    return view["next"][0]["local"], ""


def _last_cell(view: dict[str, Any]) -> tuple[str, str]:
    result = view["last"]["result"] if view["last"] else ""
    return result or "-", "red" if result in ("Failed", "Rejected") else ""


async def _next(args: argparse.Namespace, talk: Console) -> int:
    async with open_access(args, talk) as access:
        query = ScheduleQuery(name=args.name, namespace=args.namespace, next=args.count)
        (view,) = await access.ask(SCHEDULES, query)
    if args.json:
        give_json(view)
        return Exit.OK
    zone = ZoneInfo(view["timezone"])
    has_jitter = any(firing["at"] != firing["starts_at"] for firing in view["next"])
    lines = [
        firing["local"] + (f"  starts {_clock(firing['starts_at'], zone)}" if has_jitter else "")
        for firing in view["next"]
    ]
    if lines:
        give_text("\n".join(lines))
    if not lines:
        talk.always(f"{view['name']} never fires: {view['cron']}")
    elif not view["enabled"] or view["paused"]:
        talk.always(f"{view['name']} is {'paused' if view['paused'] else 'disabled'}: none of them is started")
    return Exit.OK


def _clock(instant: str, zone: tzinfo) -> str:
    return datetime.fromisoformat(instant).astimezone(zone).strftime("%H:%M:%S")


async def _pause(args: argparse.Namespace, talk: Console) -> int:
    if args.choice is not None:
        body = {"name": args.name, "namespace": args.namespace, "reason": getattr(args, "reason", "")}
        view = await _change(args, talk, body)
    else:
        async with open_client(args, talk, must_exist=True) as client:
            namespace = args.namespace or "default"
            verb, about = f"{args.action}_schedule", f"schedule/{args.name}"
            administration = schedules(await audited(client, verb, about, namespace=namespace))
            if args.action == "pause":
                paused = await administration.pause(args.name, namespace, by=args.by, reason=args.reason)
            else:
                paused = await administration.unpause(args.name, namespace)
        view = schedule_json(paused)
    if args.json:
        give_json(view)
    next_time = "" if args.action == "pause" else f"; next: {_next_cell(view)[0]}"
    talk.say(f"schedule {view['name']} {args.action}d{next_time}")
    return Exit.OK


async def _change(args: argparse.Namespace, talk: Console, body: dict[str, Any]) -> dict[str, Any]:
    async with server_access(args, talk.say) as server:
        path = f"/api/v1/schedules:{args.action}"
        changed: dict[str, Any] = await server.call("POST", path, body, key=secrets.token_hex(16))
        return changed


async def _backfill(args: argparse.Namespace, talk: Console) -> int:
    body = BackfillBody(
        name=args.name,
        namespace=args.namespace,
        begin=args.begin,
        end=args.end,
        overlap=args.overlap,
        dry_run=args.dry_run,
    )
    if args.choice is not None:
        backfill, has_server = await _change(args, talk, msgspec.to_builtins(body)), True
    else:
        async with open_client(args, talk, must_exist=True) as client:
            namespace, about = args.namespace or "default", f"schedule/{args.name}"
            acting = client
            if not args.dry_run:
                acting = await audited(client, "backfill_schedule", about, namespace=namespace)
            backfill = await backfill_json(acting, body, namespace)
            has_server = await is_served(client)
    zone, times = ZoneInfo(backfill["timezone"]), backfill["times"]
    if args.json:
        give_json(
            {
                "name": backfill["name"],
                "from": backfill["from"],
                "to": backfill["to"],
                "dry_run": args.dry_run,
                "times": times,
                "waiting": backfill["waiting"],
            }
        )
    elif args.dry_run and times:
        give_text("\n".join(in_zone(read_instant(at, 0), zone) for at in times))
    summary = f"{len(times)} time{'' if len(times) == 1 else 's'} {'would be ' if args.dry_run else ''}recorded"
    waiting = f"; {len(backfill['waiting'])} wait already" if backfill["waiting"] else ""
    them = "it" if len(times) == 1 else "them"
    follow = "" if args.dry_run or not times or has_server else f"; `perdure serve` starts {them}"
    talk.say(f"{summary}{waiting}{follow}")
    return Exit.OK


_ACTIONS: dict[str, Any] = {"list": _list, "next": _next, "pause": _pause, "unpause": _pause, "backfill": _backfill}
