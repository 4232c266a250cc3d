"""`db status`: how the store stands."""

import argparse
import sys
from typing import Any

from perdure.cli.console import Console, width_of
from perdure.cli.exit_codes import Exit
from perdure.cli.log_output import log_to
from perdure.cli.outline import outline
from perdure.cli.stdout import give_json, give_text
from perdure.engine.clock import SystemClock
from perdure.kernel.values import SECOND
from perdure.stores.admin import Owner, StoreStatistics, TableSize
from perdure.views.times import iso, span
from perdure.wiring import open_admin

EXAMPLES = """\
examples:
  perdure db status
  perdure db status --db postgresql://db.example/runs
  perdure db status --json                               for a monitor

Counts and sizes only; nothing of a run is read. `runs.overdue` and `inbox.oldest_seconds` grow when engines do not keep
up, `runs.unowned` counts open runs that nobody works on. On PostgreSQL the rows of tables are the planner's estimates.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES


def perform(asked: argparse.Namespace, talk: Console) -> int:
    log_to(talk, asked.verbose)
    caretaker = open_admin(asked.db, SystemClock())
    told = _told(caretaker.address, caretaker.statistics())
    if asked.json:
        give_json(told)
    else:
        give_text("\n".join(outline(_for_people(told), width_of(sys.stdout))))
    return Exit.OK


def _told(address: str, figures: StoreStatistics) -> dict[str, Any]:
    schema, runs = figures.schema, figures.runs
    oldest = figures.oldest_letter
    return {
        "store": address,
        "kind": figures.kind,
        "schema": {
            "version": schema.version,
            "newest": schema.newest,
            "up_to_date": not schema.missing,
            "missing": list(schema.missing),
        },
        "owners": [_owner(one) for one in figures.owners],
        "runs": {
            "total": runs.total,
            "open": runs.open,
            "at_work": runs.at_work,
            "parked": runs.parked,
            "overdue": runs.overdue,
            "stuck": runs.stuck,
            "unowned": runs.unowned,
            "ended": runs.ended,
            "by_status": runs.by_status,
        },
        "inbox": {
            "letters": figures.letters,
            "oldest_at": iso(oldest),
            "oldest_seconds": None if oldest is None else _seconds(figures.now - oldest),
        },
        "permits": {"held": figures.permits_held, "waiting": figures.permits_waiting},
        "tasks": {"ready": figures.tasks_ready, "leased": figures.tasks_leased},
        "resources": figures.resources,
        "connections": None
        if figures.connections is None
        else {"used": figures.connections[0], "allowed": figures.connections[1]},
        "bytes": figures.bytes,
        "tables": [_table(one) for one in figures.tables],
    }


def _owner(owner: Owner) -> dict[str, Any]:
    return {
        "name": owner.name,
        "live": owner.is_live,
        "serves": owner.serves,
        "epoch": owner.epoch,
        "partitions": list(owner.partitions),
        "lease_left_seconds": _seconds(owner.left),
    }


def _table(table: TableSize) -> dict[str, Any]:
    return {
        "name": table.name,
        "rows": table.rows,
        "bytes": table.bytes,
        "dead_rows": table.dead,
        "vacuumed_seconds": _seconds(table.vacuumed),
    }


def _seconds(length: int | None) -> float | None:
    return None if length is None else round(length / SECOND, 3)


def _for_people(told: dict[str, Any]) -> dict[str, Any]:
    """The same, shorter: a line per owner and table."""
    schema, inbox, connections = told["schema"], told["inbox"], told["connections"]
    to_do = f"of {schema['newest']}; `perdure db migrate` would apply {', '.join(schema['missing'])}"
    shown = told | {
        "schema": f"{schema['version']} {'(up to date)' if schema['up_to_date'] else to_do}",
        "owners": [_owner_line(one) for one in told["owners"]] or "nobody: no engine is running",
        "inbox": "empty"
        if not inbox["letters"]
        else f"{inbox['letters']:,} letters, the oldest {span(int(inbox['oldest_seconds'] * SECOND))} old",
        "bytes": size(told["bytes"]),
        "tables": {one["name"]: _table_line(one) for one in told["tables"] if one["rows"]},
    }
    if connections is None:
        del shown["connections"]
    else:
        shown["connections"] = f"{connections['used']} of {connections['allowed']}"
    return shown


def _owner_line(owner: dict[str, Any]) -> str:
    what = {True: ", serving", False: ", for its own runs", None: ""}[owner["serves"]]
    line = f"{owner['name']}{what}: partitions {ranges(owner['partitions'])}"
    if owner["lease_left_seconds"] is not None:
        line += f", lease for {owner['lease_left_seconds']:.1f} s more"
    return line if owner["live"] else f"{line} (dead; to be taken over)"


def _table_line(table: dict[str, Any]) -> str:
    line = f"{table['rows']:,} rows, {size(table['bytes'])}"
    if table["dead_rows"] is not None:
        line += f", {table['dead_rows']:,} dead"
    if table["vacuumed_seconds"] is not None:
        line += f", vacuumed {span(int(table['vacuumed_seconds'] * SECOND))} ago"
    return line


def size(count: int) -> str:
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1_000:
            return f"{value:.0f} {unit}"
        value /= 1_000
    return f"{value:.1f} GB"


def ranges(numbers: list[int]) -> str:
    """`1-4, 7`."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][-1] == number - 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts) or "none"
