"""`describe`: one resource for people: what it says, how it stands, which runs belong to it and what happened last."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console, Paint, indented
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_access
from perdure.cli.resource_output import age, pairs
from perdure.cli.stdout import give_json, give_text
from perdure.cli.tables import Column, table
from perdure.cli.verbs.history import EventLine
from perdure.kernel.documents.validation import Resource
from perdure.kernel.json_values.values import Instant
from perdure.views.resources.resource_details import DESCRIPTION, DescriptionQuery, details_json
from perdure.views.resources.resource_list import resource_yaml
from perdure.views.runs.progress_events import status_words
from perdure.views.times import local, span

EXAMPLES = """\
examples:
  perdure describe story deploy
  perdure describe playbook math/sums
  perdure describe storyrun deploy-x7k -n shop
"""

LINES_SHOWN = 20


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("what", metavar="KIND NAME", nargs="+", help="KIND NAME or KIND/NAME")
    a.add_namespace(parser, "namespace of the resources (default: default)")


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete(_describe(args, talk))


async def _describe(args: argparse.Namespace, talk: Console) -> int:
    async with open_access(args, talk) as access:
        described = await access.ask(DESCRIPTION, DescriptionQuery(what=args.what, namespace=args.namespace))
    details = [details_json(item) for item in described.items]
    if args.json:
        give_json(details[0] if len(details) == 1 else details)
    else:
        give_text("\n\n".join("\n".join(map(indented, _lines(resource, described.now))) for resource in details))
    return Exit.OK


def _lines(details: dict[str, Any], now: Instant) -> list[str]:
    resource: Resource = details["resource"]
    metadata = resource.get("metadata", {})
    paint = Paint(sys.stdout)
    age_text = age(resource, now)
    head = [
        ("Name", str(metadata.get("path") or metadata.get("name"))),
        ("Namespace", str(metadata.get("namespace", ""))),
        ("Kind", f"{resource['kind']} ({resource.get('apiVersion', '')})"),
        ("Labels", pairs(metadata.get("labels"))),
        ("Annotations", pairs(metadata.get("annotations"))),
        ("Generation", str(metadata.get("generation", ""))),
        ("Created", f"{metadata.get('creationTimestamp', '')} ({age_text} ago)" if age_text else ""),
        ("UID", str(metadata.get("uid", ""))),
    ]
    widest = max(len(name) for name, text in head if text)
    lines = [f"{paint(name.ljust(widest), 'dim')}  {text}" for name, text in head if text]
    status = resource.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    rest = {name: value for name, value in resource.items() if name not in ("apiVersion", "kind", "metadata", "status")}
    lines += _section("Spec", rest.get("spec", {}) if set(rest) <= {"spec"} else rest, paint)
    lines += _section("Status", {k: v for k, v in (status or {}).items() if k != "conditions"}, paint)
    lines += _grid(
        "Conditions", ["TYPE", "STATUS", "REASON", "MESSAGE"], [_condition(condition) for condition in conditions or []]
    )
    editions = [[str(edition["generation"]), local(edition["created_at"])] for edition in details["versions"]]
    lines += _grid("Versions", ["GENERATION", "CREATED"], editions if len(editions) > 1 else [])
    runs = [
        [run["id"], status_words(run["status"]), span((run["ended_at"] or now) - run["created_at"])]
        for run in details["runs"]
    ]
    lines += _grid("Runs", ["ID", "STATUS", "AGE"], runs)
    logged = [
        [str(attempt["attempt"]), str(line["at"]), str(line["level"]), str(line["message"])]
        for attempt in details.get("log", ())
        for line in attempt["log"][-LINES_SHOWN:]
    ]
    lines += _grid("Log", ["ATTEMPT", "AT", "LEVEL", "MESSAGE"], logged)
    if details["events"]:
        line = EventLine(is_full=False)
        lines += ["", paint("Events", "bold"), *(f"  {line(event).lstrip()}" for event in details["events"])]
    return lines


def _section(title: str, value: Any, paint: Paint) -> list[str]:
    if not value:
        return []
    return ["", paint(title, "bold"), *(f"  {line}" for line in resource_yaml(value).splitlines())]


def _grid(title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    columns = [Column(name, may_shrink=name == names[-1]) for name in names]
    cells = [[(text, "") for text in row] for row in rows]
    paint = Paint(sys.stdout)
    return ["", paint(title, "bold"), *(f"  {line}" for line in table(columns, cells, indent=2))]


def _condition(condition: dict[str, Any]) -> list[str]:
    return [str(condition.get(name, "")) for name in ("type", "status", "reason", "message")]
