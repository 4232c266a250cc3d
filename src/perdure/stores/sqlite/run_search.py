"""Searching runs: a page costs what it shows, however many runs there are.

A page of runs whose id or name begins with a text, or one of whose labels has it as its value, has no index of its own.
Where few runs match, they are read and sorted. Where they have few names, each name is walked along its index. Else
the runs are walked from the latest on, in parts: then many of them match, or the loop is left alone in between.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from perdure.kernel.json_values.values import RunId
from perdure.stores.protocol import RunFilter
from perdure.stores.rows import RUN_COLUMNS, split_filter

RUN_ROW = f"SELECT {RUN_COLUMNS} FROM runs "
FEW = 1_000  # runs that are read and sorted
MOST_NAMES = 12  # that are walked along their index
FIRST_WALK, LONGEST_WALK = 500, 8_000  # runs that are looked at in one statement

_LAST = chr(0x10FFFF)  # sorts behind everything a beginning can go on with
_BY_ID = "id >= ? AND id < ?"
_BY_NAME = "name >= ? AND name < ?"
_BY_LABEL = "number IN (SELECT run FROM run_labels WHERE value = ?)"
_NAMES = (
    "WITH RECURSIVE found (name) AS (SELECT min(name) FROM runs WHERE name >= ?1 AND name < ?2 UNION ALL"
    " SELECT (SELECT min(name) FROM runs WHERE name > found.name AND name < ?2) FROM found"
    " WHERE found.name IS NOT NULL) SELECT name FROM found WHERE name IS NOT NULL LIMIT ?3"
)
"""One look into an index for each."""

Row = tuple[Any, ...]
Read = Callable[[str, tuple[Any, ...]], list[Row]]


async def search_rows(read: Read, filter: RunFilter) -> list[Row]:
    text = filter.text
    if text is None or filter.behind is None or filter.limit is None or filter.name is not None:
        return read(*build_search(filter))
    span = (text, text + _LAST)
    if _are_few(read, f"runs WHERE {_BY_ID}", span) and _are_few(read, "run_labels WHERE value = ?", (text,)):
        names = [name for (name,) in read(_NAMES, (*span, MOST_NAMES + 1))]
        if len(names) <= MOST_NAMES:
            pages = [build_search(replace(filter, text=None, name=name)) for name in names]
            pages.append(_build_sorted(filter, f"({_BY_ID} OR {_BY_LABEL})", (*span, text)))
            return _merged([row for query, bindings in pages for row in read(query, bindings)], filter.limit)
        if _are_few(read, f"runs WHERE {_BY_NAME}", span):
            return read(*_build_sorted(filter, f"({_BY_ID} OR {_BY_NAME} OR {_BY_LABEL})", (*span, *span, text)))
    return await _walk(read, filter, text)


def _are_few(read: Read, among: str, bindings: tuple[Any, ...]) -> bool:
    return bool(read(f"SELECT count(*) <= {FEW} FROM (SELECT 1 FROM {among} LIMIT {FEW + 1})", bindings)[0][0])


def _merged(rows: list[Row], limit: int) -> list[Row]:
    """The latest; a run may match by its id and by its name."""
    different = {row[0]: row for row in rows}.values()
    return sorted(different, key=_place, reverse=True)[:limit]


def _place(row: Row) -> tuple[int, str]:
    return row[11], row[0]  # created_at, id: see RUN_COLUMNS


async def _walk(read: Read, filter: RunFilter, text: str) -> list[Row]:
    """From the latest run on, without the text; those that have it are kept."""
    assert filter.limit is not None
    rows: list[Row] = []
    part, length = replace(filter, text=None), FIRST_WALK
    while True:
        walked, bindings = build_search(replace(part, limit=length))
        numbered = walked.replace(RUN_ROW, f"SELECT {RUN_COLUMNS}, number FROM runs ")
        query = f"SELECT * FROM ({numbered}) WHERE {_BY_ID} OR {_BY_NAME} OR {_BY_LABEL} LIMIT ?"
        span = (text, text + _LAST)
        rows += [row[:-1] for row in read(query, (*bindings, *span, *span, text, filter.limit - len(rows)))]
        if len(rows) >= filter.limit:
            return rows
        last = read(f"SELECT created_at, id FROM ({walked}) LIMIT 1 OFFSET ?", (*bindings, length - 1))
        if not last:
            return rows  # it was shorter
        part, length = replace(part, behind=(last[0][0], RunId(last[0][1]))), min(2 * length, LONGEST_WALK)
        await asyncio.sleep(0)


def _build_sorted(filter: RunFilter, matching: str, values: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Those that match are read by their own indexes, whatever else is asked, and sorted."""
    conditions, bindings = _build_conditions(replace(filter, text=None), hidden=True)
    query = f"{RUN_ROW}WHERE {matching} AND {conditions} ORDER BY created_at DESC, id DESC LIMIT ?"
    return query, (*values, *bindings, filter.limit)


def build_search(filter: RunFilter) -> tuple[str, tuple[Any, ...]]:
    """One statement that walks along several indexes at once, if need be: SQLite merges what they have in order."""
    tie = "number" if filter.behind is None else "id"
    parts = [(_index_for(part), *_build_conditions(part)) for part in split_filter(filter)]
    query = " UNION ALL ".join(f"{RUN_ROW}{index}WHERE {conditions}" for index, conditions, _ in parts)
    query += f" ORDER BY created_at DESC, {tie} DESC"
    bindings = [value for _, _, values in parts for value in values]
    if filter.limit is not None:
        query += " LIMIT ?"
        bindings.append(filter.limit)
    return query, tuple(bindings)


def _index_for(filter: RunFilter) -> str:
    """Named where SQLite would take the one by time alone, which a span of time limits on both sides."""
    if filter.created_after is None or filter.parent is not None or filter.labels or filter.text is not None:
        return ""
    if filter.name is not None:
        return "INDEXED BY runs_called "
    if filter.namespaces is None or len(filter.namespaces) != 1:
        return "INDEXED BY runs_in_language " if filter.language and filter.namespaces is None else ""
    return f"INDEXED BY {'runs_in_status' if filter.statuses else 'runs_of_namespace'} "


def _build_conditions(filter: RunFilter, hidden: bool = False) -> tuple[str, list[Any]]:
    """A plus sign hides a column from the choice of an index: there is one that leads to fewer runs."""
    conditions, bindings = ["TRUE"], list[Any]()
    by_name = filter.name is not None
    status = "+status" if hidden else "status"
    language = "+language" if hidden or by_name or filter.namespaces is not None else "language"
    namespace = "+namespace" if hidden or by_name else "namespace"
    created_at = "+created_at" if hidden else "created_at"
    if filter.statuses:
        conditions.append(f"{status} IN ({', '.join('?' * len(filter.statuses))})")
        bindings.extend(each.value for each in filter.statuses)
    for column, operator, value in (
        ("name", "=", filter.name),
        (language, "=", filter.language),
        (created_at, ">=", filter.created_after),
        (created_at, "<", filter.created_before),
        ("parent", "=", filter.parent),
    ):
        if value is not None:
            conditions.append(f"{column} {operator} ?")
            bindings.append(value)
    if filter.namespaces is not None:
        conditions.append(f"{namespace} IN ({', '.join('?' * len(filter.namespaces))})")
        bindings.extend(filter.namespaces)
    if filter.text is not None:
        conditions.append(f"({_BY_ID} OR {_BY_NAME} OR {_BY_LABEL})")
        bindings.extend((filter.text, filter.text + _LAST) * 2 + (filter.text,))
    if filter.roots_only:
        conditions.append("+parent IS NULL" if hidden else "parent IS NULL")
    for name, text in filter.labels.items():
        conditions.append("number IN (SELECT run FROM run_labels WHERE name = ? AND value = ?)")
        bindings.extend((name, text))
    if filter.behind is not None:
        conditions.append(f"({created_at}, id) < (?, ?)")
        bindings.extend(filter.behind)
    return " AND ".join(conditions), bindings
