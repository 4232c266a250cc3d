"""`impact`: which open runs of a document can go on with another version of it; and a plan to move them."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from perdure.cli import arguments as a
from perdure.cli.console import Console, cut, width_of
from perdure.cli.document_files import read, read_applied
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_observer
from perdure.cli.server_choice import server_access
from perdure.cli.stdout import give_json, give_text
from perdure.cli.tables import Cell, Column, table
from perdure.engine.private_files import write_private
from perdure.views.runs.run_migration import ImpactVerdict, impact, read_new_document
from perdure.wiring import load_sources

EXAMPLES = """\
examples:
  perdure impact orders.json                          open runs of `orders`: safe, needs mapping, blocked, and why
  perdure impact story.yaml --map build=compile       a step that has another name in the new document
  perdure impact orders.json --plan plan.json         write a plan, to be edited and given to `perdure migrate`
  perdure impact orders.json 06g2k --json             one run

A run is safe to move if everything that is open in it is the same in both documents. Nothing is changed. The exit
code is 7 if a run is blocked or needs a mapping.
"""

COLUMNS = (Column("RUN"), Column("STATUS", may_go=True), Column("VERDICT"), Column("WHY", may_shrink=True))
COLOURS = {ImpactVerdict.SAFE: "green", ImpactVerdict.NEEDS_MAPPING: "yellow", ImpactVerdict.BLOCKED: "red"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("document", metavar="NEW_DOC", help="the new version of the document")
    parser.add_argument("runs", metavar="RUN", nargs="*", help="only these runs (default: all open ones of its name)")
    parser.add_argument(
        "--map",
        metavar="OLD=NEW",
        action="append",
        default=[],
        help="a step that has another name now; may be repeated",
    )
    parser.add_argument("--plan", metavar="FILE", help="write a plan for `perdure migrate`: JSON")
    parser.add_argument("--name", metavar="N", help="the name of the runs, if not that of the document or its file")
    parser.add_argument(
        "--apply", metavar="PATH", action="append", default=[], help="resources it refers to; may be repeated"
    )
    a.add_namespace(parser, "namespace of the runs (default: that of the document, or default)")
    a.add_load(parser)


def perform(args: argparse.Namespace, talk: Console) -> int:
    load_sources(() if args.choice is not None else args.load)
    return complete(_impact(args, talk))


async def _impact(args: argparse.Namespace, talk: Console) -> int:
    origin, text = read(args.document)
    applied = read_applied(args.apply)
    mapping = _mapping(args.map)
    name = args.name or Path(args.document).stem
    if args.choice is not None:
        body = {
            "document": text.decode(),
            "apply": [document.text for document in applied],
            "name": name,
            "mapping": mapping,
            "runs": args.runs,
        }
        async with server_access(args, talk.say) as server:
            judged = await server.impact(body | ({"namespace": args.namespace} if args.namespace else {}))
    else:
        async with open_observer(args, talk) as observer:
            new = await read_new_document(observer, origin, text, applied, args.namespace or "", name)
            runs = [await observer.resolve(run) for run in args.runs]
            judged = await impact(observer, new, mapping, runs)
    if args.plan:
        plan = msgspec.json.format(msgspec.json.encode(judged["plan"]), indent=2)
        write_private(Path(args.plan), plan + b"\n")
        talk.say(f"{args.plan}: a plan for {_count(_planned(judged))}; `perdure migrate --plan {args.plan} --dry-run`")
    if args.json:
        give_json(judged)
    else:
        give_text("\n".join(_lines(judged)))
    counts = judged["counts"]
    return Exit.FINDINGS if counts[ImpactVerdict.BLOCKED] or counts[ImpactVerdict.NEEDS_MAPPING] else Exit.OK


def _mapping(pairs: Sequence[str]) -> dict[str, str | None]:
    mapping: dict[str, str | None] = {}
    for pair in pairs:
        old, equals, new = pair.partition("=")
        if not old or not equals:
            raise BadUsage(f"{pair!r} is not a mapping (expected OLD=NEW, or OLD= to drop what is known of the step)")
        mapping[old] = new or None
    return mapping


def _planned(judged: dict[str, Any]) -> int:
    return sum(len(move["runs"]) for move in judged["plan"]["moves"])


def _count(number: int) -> str:
    return f"{number} run{'' if number == 1 else 's'}"


def _lines(judged: dict[str, Any]) -> list[str]:
    counts = judged["counts"]
    head = f"{judged['name']} ({judged['language']}), document {judged['document'][:12]}: "
    head += ", ".join(f"{counts[verdict]} {verdict}" for verdict in ImpactVerdict)
    lines = [
        cut(
            head + (f"; {_count(counts['current'])} with it already" if counts["current"] else ""), width_of(sys.stdout)
        )
    ]
    if judged["runs"]:
        lines += ["", *table(COLUMNS, [row for run in judged["runs"] for row in _rows(run)])]
    return [*lines, f"only the latest {len(judged['runs'])} were looked at"] if judged["more"] else lines


def _rows(run: dict[str, Any]) -> list[list[Cell]]:
    phrases = [f"{item['place']}: {item['reason']}" if item["place"] else item["reason"] for item in run["obstacles"]]
    first: list[Cell] = [(run["id"], ""), (run["status"], ""), (run["verdict"], COLOURS[run["verdict"]])]
    rows = [[*first, (phrases[0] if phrases else "", "")]]
    return rows + [[("", ""), ("", ""), ("", ""), (reason, "")] for reason in phrases[1:]]
