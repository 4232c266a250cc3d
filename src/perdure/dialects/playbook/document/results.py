"""Settings of results: when they are stored by reference, where, and for how long (PBK-170 to 177)."""

from perdure.dialects.playbook.document.cursor import Cursor
from perdure.dialects.playbook.plan.durations import read_seconds
from perdure.dialects.playbook.values.jsonpath import BadPath, JsonPath

STORES = ("auto", "memory", "kv", "disk", "object", "postgres", "db", "eventlog", "s3")
SCOPES = ("step", "execution", "workflow", "permanent")
COMPRESSIONS = ("none", "gzip", "zstd", "lz4")


def check_results(cursor: Cursor) -> None:
    """The setting `result` of an executor, a step, a loop or a task."""
    if not cursor.has("a map", "PBK-171"):
        return
    cursor.check_members(
        {
            "inline_max_bytes": lambda size: size.is_at_least(0, "PBK-170"),
            "preview_max_bytes": lambda size: size.is_at_least(0, "PBK-170"),
            "store": _store,
            "select": _select,
        }
    )
    cursor.warn_unread(("inline_max_bytes", "preview_max_bytes", "store", "select"))


def _store(cursor: Cursor) -> None:
    if not cursor.has("a map", "PBK-171", "Write store: {kind: auto, scope: execution, ttl: 2h}."):
        return
    cursor.check_members({"kind": _kind, "scope": lambda scope: scope.is_one_of(SCOPES, "PBK-177"), "ttl": _ttl})
    cursor.check_members({"compression": _compression, "bucket": lambda bucket: bucket.is_text("PBK-171")})
    cursor.warn_unread(("kind", "scope", "ttl", "compression", "bucket"))


def _compression(cursor: Cursor) -> None:
    if cursor.is_one_of(COMPRESSIONS, "PBK-171") and cursor.value != "none":
        cursor.warn("PBK-171", "bodies are stored unchanged: compression is not supported")


def _kind(cursor: Cursor) -> None:
    if cursor.value == "gcs":
        hint = "Use `s3` with a bucket that the operator names, or `auto`; or let a task of its own upload the body."
        cursor.problem("PBK-171", "there is no driver for the result store 'gcs' (Google Cloud Storage)", hint=hint)
    else:
        cursor.is_one_of(STORES, "PBK-171")


def _ttl(cursor: Cursor) -> None:
    if cursor.value is not None and cursor.value != "forever" and read_seconds(cursor.value) is None:
        cursor.problem("PBK-177", f"'ttl' must be a time like 30m, 2h, 1d or `forever`, not {cursor.value!r}")


def _select(cursor: Cursor) -> None:
    if not cursor.has("a list", "PBK-173", "Write select: [{path: $.data.next, as: next}]."):
        return
    names: set[str] = set()
    for item in cursor.items():
        if not item.has("a map", "PBK-173"):
            continue
        item.closed(("path", "as"), "PBK-173", "an item of 'select'")
        for name in ("path", "as"):
            if name not in item.value:
                item.problem("PBK-173", f"an item of 'select' lacks {name!r}")
        if "path" in item.value and item.at("path").is_text("PBK-173"):
            try:
                JsonPath(item.value["path"])
            except BadPath as problem:
                item.at("path").problem("PBK-173", str(problem), hint="Like $.data.items[0].id or $.items[*].id.")
        if "as" in item.value and item.at("as").is_text("PBK-173"):
            if item.value["as"] in names:
                item.at("as").problem("PBK-173", f"two values are selected as {item.value['as']!r}")
            names.add(item.value["as"])
