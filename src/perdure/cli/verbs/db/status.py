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
from perdure.kernel.json_values.values import SECOND
from perdure.views.administration.store_json import statistics_json
from perdure.views.times import span
from perdure.wiring import open_admin

EXAMPLES = """\
examples:
  perdure db status
  perdure db status --db postgresql://db.example/runs
  perdure db status --json                               for a monitor

Prints counts and sizes; runs are not read. `runs.overdue` and `inbox.oldest_seconds` grow when engines do not keep
up, `runs.unowned` counts open runs without an owner. On PostgreSQL the numbers of rows are estimates of the planner.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES


def perform(args: argparse.Namespace, talk: Console) -> int:
    log_to(talk, args.verbose)
    admin = open_admin(args.db, SystemClock())
    statistics = statistics_json(admin.address, admin.statistics())
    if args.json:
        give_json(statistics)
    else:
        give_text("\n".join(outline(_for_people(statistics), width_of(sys.stdout))))
    return Exit.OK


def _for_people(statistics: dict[str, Any]) -> dict[str, Any]:
    """The same, shorter: a line per owner and table."""
    schema, inbox, connections = statistics["schema"], statistics["inbox"], statistics["connections"]
    to_do = f"of {schema['newest']}; `perdure db migrate` would apply {', '.join(schema['missing'])}"
    shown = statistics | {
        "schema": f"{schema['version']} {'(up to date)' if schema['up_to_date'] else to_do}",
        "owners": [_owner_line(owner) for owner in statistics["owners"]] or "none: no engine is running",
        "inbox": "empty"
        if not inbox["letters"]
        else f"{inbox['letters']:,} messages, the oldest {span(int(inbox['oldest_seconds'] * SECOND))} old",
        "bytes": size(statistics["bytes"]),
        "tables": {table["name"]: _table_line(table) for table in statistics["tables"] if table["rows"]},
    }
    if connections is None:
        del shown["connections"]
    else:
        shown["connections"] = f"{connections['used']} of {connections['allowed']}"
    return shown


def _owner_line(owner: dict[str, Any]) -> str:
    role = {True: ", serving", False: ", for its own runs", None: ""}[owner["serves"]]
    line = f"{owner['name']}{role}: partitions {ranges(owner['partitions'])}"
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
