"""Searching runs: a page costs what it shows, however many runs there are, and whatever the statistics say.

The planner compares costs that come from statistics, and these may be old, or know one status only where a few runs are
in another one. So a query names the index to walk along: every condition that is not for this index is written so that
no index has it, and the indexes by time and by namespace are over expressions of their own.

Labels and texts have no order. Where few runs match, they are read by their own indexes and sorted; otherwise the runs
are walked from the latest on. Where a text is the beginning of few names, each name is walked along its index.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec.structs import replace

from perdure.kernel.json_values.values import RunId
from perdure.stores.postgres.wire import INT, TEXT, TEXTS, Kind, Statement, jsonb
from perdure.stores.protocol import RunFilter
from perdure.stores.rows import MOST_WALKS, RUN_COLUMNS, RUN_NAMESPACES, split_filter

COLUMNS = RUN_COLUMNS.replace("labels", "labels::text")
LAST = chr(0x10FFFF)  # sorts behind everything a prefix can go on with
FEW = 1_000  # runs that are read and sorted
MOST_NAMES = 12  # that are walked along their index
FIRST_WALK, LONGEST_WALK = 1_000, 64_000  # runs that are looked at in one statement

_CREATED_AT, _ID = 11, 0  # in COLUMNS
_FIRST = (2**62, RunId(""))
_BY_ID = "id >= {} AND id < {}"
_BY_NAME = 'name COLLATE "C" >= {} AND name COLLATE "C" < {}'
_BY_VALUE = "labels IS NOT NULL AND jsonb_path_query_array(labels, '$.*') @> jsonb_build_array({}::text)"
_BY_TEXT = f"({_BY_ID} OR {_BY_NAME} OR {_BY_VALUE})"
_BY_LABELS = "labels @> {}::jsonb"
_NAMES = Statement(  # one look into an index for each
    'WITH RECURSIVE matching (name) AS (SELECT min(name COLLATE "C") FROM runs WHERE name COLLATE "C" >= {0}'
    ' AND name COLLATE "C" < {1} UNION ALL SELECT (SELECT min(runs.name COLLATE "C") FROM runs WHERE'
    ' runs.name COLLATE "C" > matching.name AND runs.name COLLATE "C" < {1}) FROM matching'
    " WHERE matching.name IS NOT NULL) SELECT name FROM matching WHERE name IS NOT NULL LIMIT {2}",
    TEXT,
    TEXT,
    INT,
)
_ALL_NAMESPACES = Statement(RUN_NAMESPACES)

Row = tuple[Any, ...]
Read = Callable[..., Awaitable[list[Row]]]
Condition = tuple[str, Sequence[Kind], Sequence[Any]]
Question = tuple[Any, ...]  # a statement and its values


async def search_rows(read: Read, filter: RunFilter) -> list[Row]:
    if filter.namespaces is not None and not filter.namespaces:
        return []
    if filter.text is not None:
        return await _search_text(read, filter, filter.text)
    if filter.labels and filter.parent is None:
        labelled: Condition = (_BY_LABELS, (TEXT,), (jsonb(filter.labels),))
        if filter.limit is None or await _are_few(read, labelled):
            return await _read_sorted(read, replace(filter, labels={}), [labelled])
        return await _walk_in_parts(read, replace(filter, labels={}), labelled)
    return await read(*build_walk(await _with_namespaces(read, filter)))


async def _with_namespaces(read: Read, filter: RunFilter) -> RunFilter:
    """Statuses are walked along in each namespace that there is."""
    if filter.namespaces is not None or not filter.statuses or filter.name is not None or filter.parent is not None:
        return filter
    namespaces = [namespace for (namespace,) in await read(_ALL_NAMESPACES)]
    return replace(filter, namespaces=namespaces) if len(namespaces) < MOST_WALKS else filter


async def _search_text(read: Read, filter: RunFilter, text: str) -> list[Row]:
    span = (text, text + LAST)
    by_id: Condition = (_BY_ID, (TEXT, TEXT), span)
    by_name: Condition = (_BY_NAME, (TEXT, TEXT), span)
    by_value: Condition = (_BY_VALUE, (TEXT,), (text,))
    rest = replace(filter, text=None)
    if filter.limit is None:
        return await _read_sorted(read, rest, [by_id, by_name, by_value])
    if await _are_few(read, by_id) and await _are_few(read, by_value):
        if await _are_few(read, by_name):
            return await _read_sorted(read, rest, [by_id, by_name, by_value])
        names = [name for (name,) in await read(_NAMES, *span, MOST_NAMES + 1)]
        if filter.name is None and filter.parent is None and len(names) <= MOST_NAMES:
            rows = await _read_sorted(read, rest, [by_id, by_value])
            for name in names:
                rows += await read(*build_walk(replace(rest, name=name)))
            return _latest(rows, filter.limit)
    return await _walk_in_parts(read, rest, (_BY_TEXT, (TEXT,) * 5, (*span, *span, text)))


async def _walk_in_parts(read: Read, filter: RunFilter, matching: Condition) -> list[Row]:
    """From the latest run on; those that match are kept. A planner that expects few of them would sort all runs."""
    rows = list[Row]()
    assert filter.limit is not None
    length, left = FIRST_WALK, filter.limit
    part = await _with_namespaces(read, replace(filter, behind=filter.behind or _FIRST))
    while True:
        part = replace(part, limit=length)
        rows += await read(*build_part(part, matching, left))
        left = filter.limit - len(rows)
        last = await read(*build_last(part)) if left else []
        if not last:
            return rows  # there were no more
        part, length = replace(part, behind=last[0]), min(2 * length, LONGEST_WALK)


def _latest(rows: Sequence[Row], limit: int) -> list[Row]:
    """A run may match by its id and by its name."""
    different = {row[_ID]: row for row in rows}.values()
    return sorted(different, key=lambda row: (row[_CREATED_AT], row[_ID]), reverse=True)[:limit]


async def _are_few(read: Read, condition: Condition) -> bool:
    text, kinds, values = condition
    few = f"SELECT count(*) <= {FEW} FROM (SELECT 1 FROM runs WHERE {text} LIMIT {FEW + 1}) AS matching"
    return bool((await read(Statement(few, *kinds), *values))[0][0])


async def _read_sorted(read: Read, filter: RunFilter, matching: Sequence[Condition]) -> list[Row]:
    return await read(*build_sorted(filter, matching))


def build_sorted(filter: RunFilter, matching: Sequence[Condition]) -> Question:
    """Those that match are read, each by its own index; what else is asked is looked at behind the fence."""
    query = _Query()
    for text, kinds, values in matching:
        query.add(text, kinds, values)
    those = " UNION ".join(f"SELECT id FROM runs WHERE {condition}" for condition in query.taken())
    query.add_all(filter, "")
    return query.statement(
        f"SELECT {COLUMNS} FROM (SELECT * FROM runs WHERE id = ANY(ARRAY({those})) OFFSET 0) AS runs"
        f" WHERE {query.joined()}{_order('created_at', filter, 'number' if filter.behind is None else 'id')}"
    )


def build_part(filter: RunFilter, matching: Condition, most: int) -> Question:
    """Those of a part of a walk that match."""
    query = _Query()
    walk = _walk(query, filter, "*")
    query.add(*matching)
    order = f"ORDER BY created_at DESC, id DESC LIMIT {most:d}"
    return query.statement(f"SELECT {COLUMNS} FROM ({walk}) AS runs WHERE {query.joined()} {order}")


def build_last(filter: RunFilter) -> Question:
    """Where a part of a walk ends; none, if it is the last one."""
    assert filter.limit is not None
    query = _Query()
    walk = _walk(query, filter, "created_at, id")
    return query.statement(f"SELECT created_at, id FROM ({walk}) AS walked OFFSET {filter.limit - 1:d} LIMIT 1")


def build_walk(filter: RunFilter) -> Question:
    query = _Query()
    return query.statement(_walk(query, filter, COLUMNS))


def _walk(query: "_Query", filter: RunFilter, columns: str) -> str:
    """Along several indexes at once, if need be: PostgreSQL merges what they have in order."""
    parts = [filter] if filter.parent is not None else split_filter(replace(filter, behind=filter.behind or _FIRST))
    tie = "number" if filter.behind is None and len(parts) == 1 else "id"
    queries = list[str]()
    for part in parts:
        index = _index_for(part)
        query.add_all(replace(part, behind=filter.behind), index)
        order = _order(_created_at(index), filter, tie)
        queries.append(f"SELECT {columns} FROM runs WHERE {query.joined()}{order}")
    if len(queries) == 1:
        return queries[0]
    return f"{' UNION ALL '.join(f'({each})' for each in queries)}{_order('created_at', filter, tie)}"


def _index_for(filter: RunFilter) -> str:
    """Which of the indexes that have runs in the order of their creation."""
    if filter.parent is not None:
        return "parent"
    if filter.name is not None:
        return "name"
    if filter.namespaces is not None and len(filter.namespaces) == 1 and len(filter.statuses) <= 1:
        return "status" if filter.statuses else "namespace"
    return "language" if filter.language is not None and filter.namespaces is None and not filter.statuses else "all"


_COLUMNS_OF = {"parent": ("parent",), "name": ("name", "status"), "status": ("namespace", "status")}


def _created_at(index: str) -> str:
    return "created_at + 0" if index == "all" else "created_at"


def _order(created_at: str, filter: RunFilter, tie: str) -> str:
    limit = "" if filter.limit is None else f" LIMIT {filter.limit:d}"
    return f" ORDER BY {created_at} DESC, {tie} DESC{limit}"


def _hidden(condition: str) -> str:
    """From all indexes. The planner takes half of the rows to meet it; if it expected few, it would sort them."""
    return f"coalesce({condition}, false)"


class _Query:
    """Conditions with their values, in the order in which both stand in the text."""

    def __init__(self) -> None:
        self._kinds, self._values = list[Kind](), list[Any]()
        self._conditions: list[str] = []

    def add(self, condition: str, kinds: Sequence[Kind], values: Sequence[Any]) -> None:
        self._conditions.append(condition)
        self._kinds.extend(kinds)
        self._values.extend(values)

    def taken(self) -> list[str]:
        conditions, self._conditions = self._conditions, []
        return conditions

    def joined(self) -> str:
        return " AND ".join(self.taken()) or "TRUE"

    def statement(self, text: str) -> Question:
        return Statement(text, *self._kinds), *self._values

    def add_all(self, filter: RunFilter, index: str) -> None:
        """What is not for the index is hidden from the others; without an index, all is behind a fence."""
        along = _COLUMNS_OF.get(index, (index,))

        def demand(column: str, condition: str, kind: Kind, value: Any) -> None:
            self.add(condition if column in along or not index else _hidden(condition), (kind,), (value,))

        namespace = "namespace || ''" if index == "namespace" else "namespace"
        for column, expression, values in (
            ("status", "status", [status.value for status in filter.statuses] or None),
            ("namespace", namespace, filter.namespaces),
        ):
            if values is not None and len(values) == 1:  # along an index only a single value has an order
                demand(column, f"{expression} = {{}}", TEXT, values[0])
            elif values is not None:
                demand(column, f"{expression} = ANY({{}})", TEXTS, list(values))
        for column, expression, value in (
            ("name", 'name COLLATE "C"', filter.name),
            ("language", "language", filter.language),
            ("parent", "parent", filter.parent),
        ):
            if value is not None:
                demand(column, f"{expression} = {{}}", TEXT, value)
        if filter.labels:
            demand("labels", _BY_LABELS, TEXT, jsonb(filter.labels))
        if filter.roots_only:
            self.add(_hidden("parent IS NULL"), (), ())
        self._add_times(filter, _created_at(index))

    def _add_times(self, filter: RunFilter, created_at: str) -> None:
        if filter.created_after is not None:
            self.add(f"{created_at} >= {{}}", (INT,), (filter.created_after,))
        if filter.created_before is not None:
            self.add(f"{created_at} < {{}}", (INT,), (filter.created_before,))
        if filter.behind is not None:
            self.add(f"({created_at}, id) < ({{}}, {{}})", (INT, TEXT), filter.behind)
