"""`diff`: where two runs part, or what changed in one run between two moments."""

import argparse
import sys
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console, Paint, cut, width_of
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_access
from perdure.cli.stdout import give_json, give_text
from perdure.kernel.json_values import jsontext
from perdure.views.runs.history_events import HELP, event_name
from perdure.views.runs.run_differences import DIFFERENCES, DifferenceQuery

EXAMPLES = """\
examples:
  perdure diff 06g2k 06g3m              the first difference, and the first other decision, of two runs
  perdure diff 06g2k --at 4 --at 12     what changed in a run from its fourth event to its twelfth
  perdure diff 06g2k --at 4             … to now
  perdure diff 06g2k 06g3m --json       {"first_difference", "first_decision", …}

Ids, times and other values that always differ between runs are ignored.
"""

PIPE_WIDTH = 160
NOTHING = "-"  # what a side does not have


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)
    parser.add_argument("other", metavar="RUN2", nargs="?", help="the run to compare it with")
    parser.add_argument(
        "--at", metavar="MOMENT", action="append", default=[], help=f"a moment of one run: {HELP}; at most twice"
    )


def perform(args: argparse.Namespace, talk: Console) -> int:
    if len(args.at) > 2 or (args.other is not None and args.at):
        raise BadUsage("--at names one or two moments of a single run")
    return complete(_compare(args, talk))


async def _compare(args: argparse.Namespace, talk: Console) -> int:
    before, after = [*args.at, None, None][:2]
    async with open_access(args, talk) as access:
        other = None if args.other is None else await access.resolve(args.other)
        query = DifferenceQuery(other=other, before=before, after=after)
        facts = await access.ask(DIFFERENCES, query, await access.resolve(args.run))
    if args.json:
        give_json(facts)
    else:
        give_text("\n".join(_moments(facts) if other is None else _runs(facts)))
    return Exit.OK


def _moments(facts: dict[str, Any]) -> list[str]:
    until = "now" if facts["after"] is None else f"event {facts['after']}"
    head = f"{facts['name']} ({facts['language']}), run {facts['run']}: from event {facts['before']} to {until}"
    return [head, *(_sides(facts["differences"]) or ["nothing that it shows has changed"])]


def _runs(facts: dict[str, Any]) -> list[str]:
    left, right = facts["left"], facts["right"]
    document = "the same document" if facts["same_document"] else "different documents"
    lines = [
        f"left   {left['id']}  {left['name']} ({facts['language']})  {left['status']}",
        f"right  {right['id']}  {right['name']} ({facts['language']})  {right['status']}",
        document if not facts["is_same"] else f"{document}; the same happened in both",
    ]
    first, decision = facts["first_difference"], facts["first_decision"]
    if first is not None and first != decision:
        lines += _parting("first difference", first)
    if decision is not None:
        lines += _parting("first other decision", decision)
    elif first is not None:
        lines += ["", "the same was decided in both"]
    return lines


def _parting(title: str, parting: dict[str, Any]) -> list[str]:
    where = f" at {parting['step']}" if parting["step"] else ""
    events = [(side, parting[side]) for side in ("left", "right")]
    heads = [
        f"  {side:<5}  " + ("nothing more" if event is None else f"event {event['seq']}, {event_name(event)}")
        for side, event in events
    ]
    return ["", Paint(sys.stdout)(f"{title}{where}", "bold"), *heads, *_sides(parting["differences"])]


def _sides(differences: list[dict[str, Any]]) -> list[str]:
    width = width_of(sys.stdout) or PIPE_WIDTH
    return [
        cut(f"  {item['path'] or 'value'}: {_text(item, 'left')}  |  {_text(item, 'right')}", width)
        for item in differences
    ]


def _text(item: dict[str, Any], side: str) -> str:
    return jsontext.encode(item[side]).decode() if side in item else NOTHING
