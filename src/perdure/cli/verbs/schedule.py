"""`schedule`: the schedules of Impulses: list them, see their next times, pause them, start times of the past."""

import argparse
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.main import EXIT_CODES, Formatter
from perdure.cli.open_engine import open_client
from perdure.cli.stdout import give_json, give_text
from perdure.cli.tables import Column, table
from perdure.kernel.values import Instant
from perdure.views.schedule_json import firings_json, in_zone, schedule_json
from perdure.views.server_presence import is_served
from perdure.views.times import iso, read_instant
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
    "unpause": "let a paused schedule go on",
    "backfill": "start the times of a range in the past",
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


def perform(asked: argparse.Namespace, talk: Console) -> int:
    return complete(_ACTIONS[asked.action](asked, talk))


async def _list(asked: argparse.Namespace, talk: Console) -> int:
    namespace = None if asked.all_namespaces else asked.namespace or "default"
    async with open_client(asked, talk, must_exist=True) as client:
        views = await schedules(client).list(namespace)
    if asked.json:
        give_json([schedule_json(view) for view in views])
        return Exit.OK
    if not views:
        talk.say("no schedules found; an Impulse of the template `cron` has some")
        return Exit.OK
    columns = [
        *([Column("NAMESPACE")] if asked.all_namespaces else []),
        Column("NAME", may_shrink=True),
        Column("CRON"),
        Column("ZONE", may_go=True),
        Column("STARTS", may_shrink=True),
        Column("NEXT"),
        Column("LAST"),
    ]
    rows = [
        [
            *([(view.entry.namespace, "")] if asked.all_namespaces else []),
            (view.name, ""),
            (view.schedule.cron, ""),
            (str(view.schedule.timetable.zone), ""),
            (view.schedule.starts, ""),
            _next_cell(view),
            (view.state.result or "-", "red" if view.state.result in ("Failed", "Rejected") else ""),
        ]
        for view in views
    ]
    give_text("\n".join(table(columns, rows)))
    return Exit.OK


def _next_cell(view: Any) -> tuple[str, str]:
    if not view.schedule.is_enabled:
        return "disabled", "dim"
    if view.state.is_paused:
        return "paused", "yellow"
    if not view.next:
        return "never", "yellow"
    at, _ = view.next[0]
    return in_zone(at, view.schedule.timetable.zone), ""


async def _next(asked: argparse.Namespace, talk: Console) -> int:
    async with open_client(asked, talk, must_exist=True) as client:
        view = await schedules(client).find(asked.name, asked.namespace or "default", asked.count)
    if asked.json:
        give_json({**schedule_json(view), "next": firings_json(view)})
        return Exit.OK
    zone = view.schedule.timetable.zone
    has_jitter = any(at != starts_at for at, starts_at in view.next)
    lines = [
        in_zone(at, zone) + (f"  starts {_clock(starts_at, zone)}" if has_jitter else "") for at, starts_at in view.next
    ]
    if lines:
        give_text("\n".join(lines))
    if not lines:
        talk.always(f"{view.name} never fires: {view.schedule.cron}")
    elif not view.schedule.is_enabled or view.state.is_paused:
        talk.always(f"{view.name} is {'paused' if view.state.is_paused else 'disabled'}: none of them is started")
    return Exit.OK


def _clock(instant: Instant, zone: tzinfo) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant)
    return moment.astimezone(zone).strftime("%H:%M:%S")


async def _pause(asked: argparse.Namespace, talk: Console) -> int:
    async with open_client(asked, talk, must_exist=True) as client:
        administration, namespace = schedules(client), asked.namespace or "default"
        if asked.action == "pause":
            view = await administration.pause(asked.name, namespace, by=asked.by, reason=asked.reason)
        else:
            view = await administration.unpause(asked.name, namespace)
    if asked.json:
        give_json(schedule_json(view))
    talk.say(f"schedule {view.name} {asked.action}d" + ("" if asked.action == "pause" else _after_unpause(view)))
    return Exit.OK


def _after_unpause(view: Any) -> str:
    cell, _ = _next_cell(view)
    return f"; next: {cell}"


async def _backfill(asked: argparse.Namespace, talk: Console) -> int:
    namespace = asked.namespace or "default"
    async with open_client(asked, talk, must_exist=True) as client:
        administration = schedules(client)
        view = await administration.find(asked.name, namespace)
        zone, now = view.schedule.timetable.zone, client.clock.wall()
        begin, end = _instant(asked.begin, zone, now), _last_instant(asked.end, zone, now)
        backfill = await administration.backfill(
            asked.name, namespace, begin, end, overlap=asked.overlap, is_dry_run=asked.dry_run
        )
        has_server = await is_served(client)
    times = backfill.times
    if asked.json:
        give_json(
            {
                "name": view.name,
                "from": iso(begin),
                "to": iso(end),
                "dry_run": asked.dry_run,
                "times": [iso(at) for at in times],
                "waiting": [iso(at) for at in backfill.waiting],
            }
        )
    elif asked.dry_run and times:
        give_text("\n".join(in_zone(at, zone) for at in times))
    said = f"{len(times)} time{'' if len(times) == 1 else 's'} {'would be ' if asked.dry_run else ''}recorded"
    waiting = f"; {len(backfill.waiting)} wait already" if backfill.waiting else ""
    them = "it" if len(times) == 1 else "them"
    follow = "" if asked.dry_run or not times or has_server else f"; `perdure serve` starts {them}"
    talk.say(f"{said}{waiting}{follow}")
    return Exit.OK


def _last_instant(text: str, zone: tzinfo, now: Instant) -> Instant:
    """A day belongs to the range with all of its times that have passed."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return _instant(text, zone, now)
    end = _instant((day + timedelta(days=1)).isoformat(), zone, now) - 1
    return min(end, max(now, _instant(text, zone, now)))


def _instant(text: str, zone: tzinfo, now: Instant) -> Instant:
    """A time without a zone is meant in the zone of the schedule."""
    from perdure.cli.errors import BadUsage

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return read_instant(text, now)
        except ValueError as error:
            raise BadUsage(str(error)) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


_ACTIONS: dict[str, Any] = {"list": _list, "next": _next, "pause": _pause, "unpause": _pause, "backfill": _backfill}
