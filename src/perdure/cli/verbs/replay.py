"""`replay`: what recorded runs would have done with another document; nothing is called."""

import argparse
import sys
from importlib import import_module
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.capsule_store import capsule_store
from perdure.cli.console import Console, Paint, cut, width_of
from perdure.cli.document_files import read, read_applied
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_access
from perdure.cli.stdout import give_json, give_text
from perdure.engine.runs.capsules import read_capsule
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Status
from perdure.services import REPLAYER
from perdure.views.access import Access, NoParameters, StoreAccess
from perdure.views.runs.history_events import event_name
from perdure.views.runs.run_capsule import CAPSULE
from perdure.views.runs.run_differences import parting_json
from perdure.views.runs.run_list_json import ListQuery, list_all
from perdure.wiring import Observer

EXAMPLES = """\
examples:
  perdure replay --with new.json 06g2k              one run: same, or where and how it differs
  perdure replay --with new.json --name orders      the latest 20 runs with this name
  perdure replay --with new.json --name orders --status failed --limit 100 --json
  perdure replay --with new.json --filter label=team=blue --filter status=failed

Results that were recorded answer the tasks of the new document, by step and path, in virtual time. Nothing is called
and nothing is changed. The exit code is 7 if a run diverges, or needs a result that was not recorded.
"""

SAME = "same"
FILTERS = ("name", "status", "label", "namespace", "started_after", "started_before")

Document = tuple[str, bytes, list[AppliedDocument]]
"""Where it comes from, its text, and what is applied with it."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("runs", metavar="RUN", nargs="*", help="ids or names of runs")
    parser.add_argument("--with", metavar="FILE", dest="document", required=True, help="the other document")
    parser.add_argument(
        "--apply", metavar="PATH", action="append", default=[], help="resources it refers to; may be repeated"
    )
    group = parser.add_argument_group("instead of RUN: the latest runs that match")
    group.add_argument("--name", metavar="N", dest="by_name", help="runs of documents with this name")
    group.add_argument(
        "--status", metavar="S", dest="by_status", action="append", default=[], choices=[s.value for s in Status]
    )
    group.add_argument(
        "--filter",
        metavar="K=V",
        dest="filters",
        action="append",
        default=[],
        help=f"K is one of {', '.join(FILTERS)}; e.g. status=failed, label=team=blue; may be repeated",
    )
    group.add_argument("--limit", metavar="N", type=int, default=20, help="at most this many (default: 20)")
    a.add_load(parser)


def perform(args: argparse.Namespace, talk: Console) -> int:
    if bool(args.runs) == bool(args.by_name or args.by_status or args.filters):
        raise BadUsage("which runs? Name them, or choose them by --name, --status or --filter: one or the other")
    return complete(_replay(args, talk, _query(args)))


def _query(args: argparse.Namespace) -> ListQuery:
    members: dict[str, Any] = {"name": args.by_name, "status": list(args.by_status), "label": []}
    for text in args.filters:
        name, equals, value = text.partition("=")
        if name not in FILTERS or not equals or (name == "label" and "=" not in value):
            raise BadUsage(f"{text!r} is not a filter (expected K=V, K one of {', '.join(FILTERS)})")
        if name == "status" and value not in [status.value for status in Status]:
            raise BadUsage(f"{value!r} is not a status (expected one of {', '.join(Status)})")
        if isinstance(members.get(name), list):
            members[name].append(value)
        else:
            members[name] = value
    return ListQuery(**members, roots=True)


async def _replay(args: argparse.Namespace, talk: Console, query: ListQuery) -> int:
    document = (*read(args.document), read_applied(args.apply))
    async with open_access(args, talk) as access:
        runs = [await access.resolve(name) for name in args.runs]
        if not runs:
            runs = [run.id for run in (await list_all(access, query, max(1, args.limit))).runs]
        verdicts: list[Any] = []
        for run in runs:
            verdicts.append(await _replay_one(access, run, document))
            if not args.json:
                give_text("\n".join(_lines(verdicts[-1])))
    if args.json:
        give_json({"runs": [_replay_json(verdict) for verdict in verdicts]})
    else:
        same = sum(verdict.verdict == SAME for verdict in verdicts)
        give_text(f"{len(verdicts)} replayed, {same} the same")
    return Exit.OK if all(verdict.verdict == SAME for verdict in verdicts) else Exit.FINDINGS


async def _replay_one(access: Access, run: RunId, document: Document) -> Any:
    """Here, also of a run of a server: that gives the run as a capsule, and is asked for nothing else."""
    make_replayer = import_module(REPLAYER).Replayer
    if isinstance(access, StoreAccess):
        return await make_replayer(access.client, *document).replay(await access.client.find(run))
    answer = await access.ask(CAPSULE, NoParameters(), run)
    capsule = read_capsule(line.encode() for line in answer.lines)
    with capsule_store(capsule) as url:
        async with Observer(url) as observer:
            return await make_replayer(observer, *document).replay(await observer.find(run))


def _replay_json(replay: Any) -> dict[str, Any]:
    comparison = replay.comparison
    return {
        "run": replay.run,
        "name": replay.name,
        "verdict": replay.verdict,
        "status": replay.status or None,
        "needs": replay.needs,
        "reason": replay.reason or None,
        "first_difference": None if comparison is None else parting_json(comparison.values),
        "first_decision": None if comparison is None else parting_json(comparison.decision),
    }


def _lines(replay: Any) -> list[str]:
    paint, width = Paint(sys.stdout), width_of(sys.stdout)
    word = paint(replay.verdict, "green" if replay.verdict == SAME else "yellow")
    lines = [f"{replay.run}  {replay.name}: {word}"]
    lines += [f"  {replay.reason}"] if replay.reason else []
    lines += [f"  no result was recorded for {path}" for path in replay.needs[:5]]
    parting = replay.comparison and (replay.comparison.decision or replay.comparison.values)
    if parting:
        where = f" at {parting.step}" if parting.step else ""
        lines.append(f"  old{where}: {_event(parting.left)}")
        lines.append(f"  new{where}: {_event(parting.right)}")
        lines += [
            cut(f"    {item.path}: {_text(item.left)}  |  {_text(item.right)}", width)
            for item in parting.differences[:10]
        ]
    return lines


def _event(event: dict[str, Any] | None) -> str:
    return "nothing more" if event is None else f"event {event['seq']}, {event_name(event)}"


def _text(value: Any) -> str:
    return jsontext.encode(value).decode()
