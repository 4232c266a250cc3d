"""A store as JSON: the figures of `db status`, the findings of `db validate`, the result of `db copy`."""

from collections.abc import Callable
from typing import Any

from perdure.kernel.json_values.values import SECOND
from perdure.stores.admin import OrphanRow, Owner, StoreAdmin, StoreStatistics, TableSize, copy_store
from perdure.stores.records import RecordDigest
from perdure.views.times import iso


def statistics_json(address: str, statistics: StoreStatistics) -> dict[str, Any]:
    schema, runs = statistics.schema, statistics.runs
    oldest = statistics.oldest_message
    return {
        "store": address,
        "kind": statistics.kind,
        "schema": {
            "version": schema.version,
            "newest": schema.newest,
            "up_to_date": not schema.missing,
            "missing": list(schema.missing),
        },
        "owners": [_owner(owner) for owner in statistics.owners],
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
            "letters": statistics.messages,
            "oldest_at": iso(oldest),
            "oldest_seconds": None if oldest is None else _seconds(statistics.now - oldest),
        },
        "permits": {"held": statistics.permits_held, "waiting": statistics.permits_waiting},
        "tasks": {"ready": statistics.tasks_ready, "leased": statistics.tasks_leased},
        "resources": statistics.resources,
        "connections": None
        if statistics.connections is None
        else {"used": statistics.connections[0], "allowed": statistics.connections[1]},
        "bytes": statistics.bytes,
        "tables": [_table(table) for table in statistics.tables],
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


def finding_json(finding: OrphanRow) -> dict[str, Any]:
    return {"what": finding.what, "run": finding.run, "message": finding.message}


def copy_json(source: StoreAdmin, target: StoreAdmin, report: Callable[[str], None]) -> dict[str, Any]:
    """Copy a store, and say what was copied; `report` gets a line about the progress, often."""

    def heard(stage: str, digest: RecordDigest) -> None:
        runs, rows = digest.counts["runs"], digest.counts["log rows"]
        report(f"{stage}: {runs:,} runs, {rows:,} log rows, {digest.bytes / 1e6:,.1f} MB")

    result = copy_store(source, target, heard)
    counts = {name.replace(" ", "_"): count for name, count in result.tally.counts.items() if name != "catalog version"}
    return {
        "source": source.address,
        "target": target.address,
        "open_runs": result.open_runs,
        "copied": counts,
        "bytes": result.tally.bytes,
        "digest": result.tally.digest,
    }
