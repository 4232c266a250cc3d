"""`describe`: one resource for people: what it says, how it stands, which runs belong to it and what happened last."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console, Paint, indented, width_of
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_client
from perdure.cli.resource_output import age, pairs
from perdure.cli.stdout import give_json, give_text
from perdure.cli.tables import Column, table
from perdure.cli.verbs.history import EventLine
from perdure.documents import write_document
from perdure.engine.catalog import ResourceNotFound
from perdure.engine.client import Client
from perdure.engine.resource_usage import with_usage
from perdure.engine.resource_views import find_views
from perdure.kernel.resource_kinds import ResourceKind
from perdure.kernel.validation import Resource
from perdure.kernel.values import Instant
from perdure.stores.protocol import Edition, RunFilter, RunRow
from perdure.views.progress_events import status_words
from perdure.views.resource_names import full_resource_names
from perdure.views.times import local, span

EXAMPLES = """\
examples:
  perdure describe story deploy
  perdure describe playbook math/sums
  perdure describe storyrun deploy-x7k -n shop
"""

RUNS_SHOWN = 10
RUNS_LOOKED_AT = 50
EVENTS_SHOWN = 10
LINES_SHOWN = 20
EDITIONS_SHOWN = 10


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("what", metavar="KIND NAME", nargs="+", help="KIND NAME or KIND/NAME")
    a.add_namespace(parser, "of this namespace (default: default)")


def perform(asked: argparse.Namespace, talk: Console) -> int:
    return complete(_describe(asked, talk))


async def _describe(asked: argparse.Namespace, talk: Console) -> int:
    async with open_client(asked, talk, must_exist=True) as client:
        told = []
        for one in full_resource_names(client.catalog, asked.what):
            assert one.name is not None
            tell = _of_run if one.kind.of_runs else _of_entry
            told.append(await tell(client, one.kind, one.name, asked.namespace or ""))
        if asked.json:
            give_json(told[0] if len(told) == 1 else told)
        else:
            give_text("\n\n".join("\n".join(map(indented, _lines(one, client.clock.now()))) for one in told))
        return Exit.OK


async def _of_entry(client: Client, kind: ResourceKind, name: str, namespace: str) -> dict[str, Any]:
    (resource,) = await with_usage(client, kind, [await client.catalog.get(kind, name, namespace)])
    editions = await client.catalog.editions(kind, name, namespace)
    return {
        "resource": resource,
        "versions": [_edition(one) for one in editions[-EDITIONS_SHOWN:]],
        "runs": [_run(row) for row in await _runs_of(client, kind, resource)],
        "events": [],
    }


async def _of_run(client: Client, kind: ResourceKind, name: str, namespace: str) -> dict[str, Any]:
    views = await find_views(client, kind, name, namespace or "default")
    if not views:
        raise ResourceNotFound(f"there is no {kind.title(name)}")
    row, resource = views[0]
    children = await client.search(RunFilter(parent=row.id, limit=RUNS_SHOWN))
    events = await client.history(row.id)
    return {
        "resource": resource,
        "versions": [],
        "runs": [_run(row), *map(_run, children)],
        "events": [event for event in events if _concerns(event, resource)][-EVENTS_SHOWN:],
        "log": await _log(client, row, resource),
    }


def _concerns(event: dict[str, Any], resource: Resource) -> bool:
    """Of a StepRun only what its step did."""
    step = resource.get("spec", {}).get("stepId")
    return step is None or event.get("step") == step


async def _log(client: Client, row: RunRow, resource: Resource) -> list[dict[str, Any]]:
    """What the executions of a step have logged, by attempt."""
    kept = resource.get("status", {}).get("logs")
    if not isinstance(kept, dict) or len(kept) != 1:
        return []
    (address,) = kept.values()
    found: list[dict[str, Any]] = await client.body(row.id, address)
    return found


async def _runs_of(client: Client, kind: ResourceKind, resource: Resource) -> list[RunRow]:
    """Runs that were started from the entry, or from a document of its name."""
    if not kind.can_run:
        return []
    metadata = resource["metadata"]
    names = {
        str(metadata.get("name")),
        str(metadata.get("path")),
        f"{metadata.get('namespace')}/{metadata.get('name')}",
    }
    language = client.catalog.language_of(kind).name
    wanted = [RunFilter(name=name, language=language, limit=RUNS_LOOKED_AT) for name in sorted(names)]
    rows = [row for filter in wanted for row in await client.search(filter)]
    mine: list[RunRow] = []
    for row in sorted(rows, key=lambda row: row.created_at, reverse=True):
        if len(mine) < RUNS_SHOWN and await _is_of(client, row, metadata.get("namespace")):
            mine.append(row)
    return mine


async def _is_of(client: Client, row: RunRow, namespace: str | None) -> bool:
    """Whether a run is one of this namespace, where its program knows of any."""
    program = (await client.execution(row.id)).program
    return getattr(program, "namespace", namespace) == namespace


def _edition(one: Edition) -> dict[str, Any]:
    return {"generation": one.generation, "created_at": one.created_at}


def _run(row: RunRow) -> dict[str, Any]:
    return {"id": row.id, "status": row.status, "created_at": row.created_at, "ended_at": row.ended_at}


def _lines(told: dict[str, Any], now: Instant) -> list[str]:
    resource: Resource = told["resource"]
    metadata = resource.get("metadata", {})
    paint = Paint(sys.stdout)
    made = age(resource, now)
    head = [
        ("Name", str(metadata.get("path") or metadata.get("name"))),
        ("Namespace", str(metadata.get("namespace", ""))),
        ("Kind", f"{resource['kind']} ({resource.get('apiVersion', '')})"),
        ("Labels", pairs(metadata.get("labels"))),
        ("Annotations", pairs(metadata.get("annotations"))),
        ("Generation", str(metadata.get("generation", ""))),
        ("Created", f"{metadata.get('creationTimestamp', '')} ({made} ago)" if made else ""),
        ("UID", str(metadata.get("uid", ""))),
    ]
    widest = max(len(name) for name, text in head if text)
    lines = [f"{paint(name.ljust(widest), 'dim')}  {text}" for name, text in head if text]
    status = resource.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    rest = {name: value for name, value in resource.items() if name not in ("apiVersion", "kind", "metadata", "status")}
    lines += _section("Spec", rest.get("spec", {}) if set(rest) <= {"spec"} else rest, paint)
    lines += _section("Status", {k: v for k, v in (status or {}).items() if k != "conditions"}, paint)
    lines += _grid("Conditions", ["TYPE", "STATUS", "REASON", "MESSAGE"], [_condition(one) for one in conditions or []])
    editions = [[str(one["generation"]), local(one["created_at"])] for one in told["versions"]]
    lines += _grid("Versions", ["GENERATION", "CREATED"], editions if len(editions) > 1 else [])
    runs = [
        [one["id"], status_words(one["status"]), span((one["ended_at"] or now) - one["created_at"])]
        for one in told["runs"]
    ]
    lines += _grid("Runs", ["ID", "STATUS", "AGE"], runs)
    logged = [
        [str(one["attempt"]), str(line["at"]), str(line["level"]), str(line["message"])]
        for one in told.get("log", ())
        for line in one["log"][-LINES_SHOWN:]
    ]
    lines += _grid("Log", ["ATTEMPT", "AT", "LEVEL", "MESSAGE"], logged)
    if told["events"]:
        line = EventLine(is_full=False)
        lines += ["", paint("Events", "bold"), *(f"  {line(event).lstrip()}" for event in told["events"])]
    return lines


def _section(title: str, value: Any, paint: Paint) -> list[str]:
    if not value:
        return []
    return ["", paint(title, "bold"), *(f"  {line}" for line in write_document(value).splitlines())]


def _grid(title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    width = width_of(sys.stdout)
    columns = [Column(name, may_shrink=name == names[-1]) for name in names]
    cells = [[(text, "") for text in row] for row in rows]
    paint = Paint(sys.stdout)
    shown = table(columns, cells, None if width is None else width - 2, paint)
    return ["", paint(title, "bold"), *(f"  {line}" for line in shown)]


def _condition(one: dict[str, Any]) -> list[str]:
    return [str(one.get(name, "")) for name in ("type", "status", "reason", "message")]
