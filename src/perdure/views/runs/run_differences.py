"""Two runs beside each other, or one run at two moments (`perdure diff`)."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from perdure.analysis.differences import (
    Difference,
    HistoryMarks,
    PartedPlace,
    Parting,
    differences,
    part,
    parted_places,
)
from perdure.engine.client import Client
from perdure.engine.decision_threads import LARGE, done_aside
from perdure.engine.runs import run_views
from perdure.engine.runs.history_pages import histories_of
from perdure.kernel.dialect import Dialect
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.stores.protocol import RunRow
from perdure.views.access import Query, Question, Scope
from perdure.views.errors import BadRequest
from perdure.views.runs.history_events import event_at, event_json
from perdure.views.runs.run_details import run_at, show_json

EVENTS_AT_ONCE = 250


class DifferenceQuery(Query):
    other: str | None = None  # another run
    before: str | None = None  # moments of the same run: an event by number or id, or a time
    after: str | None = None


async def read_differences(client: Client, scope: Scope, query: DifferenceQuery) -> dict[str, Any]:
    if query.other is None:
        return await compare_moments(client, scope.run, query.before, query.after)
    if query.before is not None or query.after is not None:
        raise BadRequest("two runs are compared as they are now", hint="Leave `--at` out, or name one run only.")
    return await compare_runs(client, scope.run, await client.resolve(query.other, scope.namespaces))


DIFFERENCES = Question(
    "compare_runs",
    "/runs/{id}/diff",
    "where two runs differ, or what changed in one between two moments",
    DifferenceQuery,
    Any,
    read_differences,
)


async def compare_moments(client: Client, run: RunId, before: str | None, after: str | None) -> dict[str, Any]:
    """What its language shows of a run, at one moment and a later one; from its first event until now if not said."""
    first = 1 if before is None else await event_at(client, run, before)
    last = None if after is None else await event_at(client, run, after)
    if last is not None and last < first:
        first, last = last, first
    pictures = []
    for at in (first, last):
        row, execution, pending = await run_at(client, run, at)
        pictures.append(await show_json(client, execution, pending))
    is_large = any(map(jsontext.is_large, pictures))
    size = LARGE if is_large else run_views.WORK_OF_EVENT * execution.state.seq
    changes = await done_aside(size, lambda: differences(*pictures))
    return {
        "run": run,
        "name": row.name,
        "language": row.language,
        "before": first,
        "after": last,
        "is_same": not changes,
        "differences": [_difference_json(change) for change in changes],
    }


async def compare_runs(client: Client, left: RunId, right: RunId) -> dict[str, Any]:
    """The first event at which they differ, and the first at which something else was decided."""
    rows = [await client.find(run) for run in (left, right)]
    if rows[0].language != rows[1].language:
        raise BadRequest(
            f"run {left} is written in {rows[0].language}, run {right} in {rows[1].language}",
            hint="Compare runs of one language.",
        )
    dialect = run_views.dialect_of(client.languages, rows[0].language)
    names = run_views.names_of(rows[0], dialect), run_views.names_of(rows[1], dialect)
    marks = [await _marks_of(client, row, dialect, own) for row, own in zip(rows, names, strict=True)]
    places = await done_aside(LARGE, lambda: parted_places(*marks))
    values, decision = [None if place is None else await _part(client, rows, place, names) for place in places]
    return {
        "left": _run_json(rows[0]),
        "right": _run_json(rows[1]),
        "language": rows[0].language,
        "same_document": rows[0].program == rows[1].program,
        "is_same": values is None,
        "first_difference": parting_json(values),
        "first_decision": parting_json(decision),
    }


async def _marks_of(client: Client, row: RunRow, dialect: Dialect, names: Sequence[str]) -> HistoryMarks:
    """Page by page: a history may be larger than the memory for it."""
    marks, after = HistoryMarks(names), 0
    with run_views.naming(row.id):
        mask = await run_views.mask_of_run(client.store, client.languages, row)  # it may read the whole run
        read = partial(histories_of(client.store).read, dialect, row, mask, is_own=dialect.has_own_history)
        while page := await read(after, limit=EVENTS_AT_ONCE):
            after = page[-1]["seq"]
            await run_views.told_aside(len(page), partial(marks.add, page))
    return marks


async def _part(
    client: Client, rows: Sequence[RunRow], place: PartedPlace, names: tuple[Sequence[str], Sequence[str]]
) -> Parting:
    events: list[dict[str, Any] | None] = []
    for row, number in zip(rows, place.numbers, strict=True):
        page = [] if number is None else await client.history(row.id, number - 1, limit=1)
        events.append(page[0] if page else None)
    return await done_aside(LARGE, lambda: part(place, events, names))


def _run_json(row: RunRow) -> dict[str, Any]:
    return {"id": row.id, "name": row.name, "status": str(row.status)}


def parting_json(parting: Parting | None) -> dict[str, Any] | None:
    if parting is None:
        return None
    return {
        "step": parting.step or None,
        "thread": parting.thread or None,
        "left": None if parting.left is None else event_json(parting.left),
        "right": None if parting.right is None else event_json(parting.right),
        "differences": [_difference_json(difference) for difference in parting.differences],
    }


def _difference_json(difference: Difference) -> dict[str, Any]:
    """A side that does not have the place has no member."""
    sides = zip(("left", "right"), (difference.left, difference.right), difference.has, strict=True)
    return {"path": difference.path, **{name: value for name, value, has in sides if has}}
