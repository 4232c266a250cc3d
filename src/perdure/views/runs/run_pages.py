"""Lists of runs by page: the latest first, with a cursor that holds its filter and its place."""

import base64
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec.structs import replace

from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import OPEN_STATUSES, Status
from perdure.stores.protocol import RunFilter, RunRow
from perdure.views.errors import BadRequest
from perdure.views.runs.run_list import Ownership, with_pending_messages
from perdure.views.times import iso

if TYPE_CHECKING:
    from perdure.engine.client import Client

FIRST = (2**62, RunId(""))
Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
NO_CURSOR = "this is not a cursor (expected `next` of the answer before)"
MOST_LOOKS = 20  # pages of the store that one page looks through


class RunPageAnswer(msgspec.Struct, frozen=True):
    rows: Sequence[RunRow]
    owners: Ownership
    next: str


async def run_page(client: "Client", query: RunFilter, limit: int, cursor: str | None) -> RunPageAnswer:
    """Up to `limit` runs that match. What is pending for a run without an owner counts as its status."""
    behind = FIRST if cursor is None else read_cursor(cursor, query)
    asked_statuses = frozenset(query.statuses)
    statuses = (
        query.statuses if asked_statuses.isdisjoint(OPEN_STATUSES) else sorted(asked_statuses.union(OPEN_STATUSES))
    )
    matching: list[RunRow] = []
    is_more = True
    for _ in range(MOST_LOOKS):
        asked = limit - len(matching) + 1  # one more tells whether there is a next page
        rows = await client.search(replace(query, statuses=statuses, limit=asked, behind=behind))
        is_more = len(rows) == asked
        rows = rows[: asked - 1]
        shown, _pending = await with_pending_messages(client, rows, await Ownership.of(client, rows))
        matching += [row for row in shown if not asked_statuses or row.status in asked_statuses]
        if rows:
            behind = (rows[-1].created_at, rows[-1].id)
        if not is_more or len(matching) == limit:
            break
    return RunPageAnswer(matching, await Ownership.of(client, matching), write_cursor(behind, query) if is_more else "")


def write_cursor(behind: tuple[Instant, RunId], query: RunFilter) -> str:
    return write_page_cursor([behind[0], behind[1]], _mark(query))


def read_cursor(cursor: str, query: RunFilter) -> tuple[Instant, RunId]:
    at, run = read_page_cursor(cursor, _mark(query), (int, str))
    return at, RunId(run)


def _mark(query: RunFilter) -> str:
    return page_mark(replace(query, limit=None, behind=None, statuses=sorted(query.statuses)))


# Cursors of any list: a place in it, and a mark of its filter.


def page_mark(filter: Any) -> str:
    return sha256(msgspec.json.encode(filter, order="sorted")).hexdigest()[:16]


def write_page_cursor(place: Sequence[Any], mark: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([*place, mark])).decode().rstrip("=")


def read_page_cursor(cursor: str, mark: str, parts: Sequence[type]) -> tuple[Any, ...]:
    """The place, whose parts are of these types."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        *place, its_mark = msgspec.json.decode(
            text, type=list[Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] | str]
        )
    except (ValueError, msgspec.DecodeError):
        raise BadRequest(NO_CURSOR) from None
    if [type(part) for part in place] != list(parts):
        raise BadRequest(NO_CURSOR)
    if its_mark != mark:
        raise BadRequest("the cursor belongs to a list with another filter")
    return tuple(place)


def read_offset(cursor: str | None, mark: str) -> int:
    """Where a page begins in a list that only grows at its end."""
    return 0 if cursor is None else int(read_page_cursor(cursor, mark, (int,))[0])


def run_item_json(row: RunRow, owners: Ownership) -> dict[str, Any]:
    """A run in a list of the API."""
    return {
        "id": row.id,
        "language": row.language,
        "name": row.name,
        "namespace": row.namespace,
        "status": row.status.value,
        "parent": row.parent,
        "labels": row.labels,
        "started_at": iso(row.created_at),
        "ended_at": iso(row.ended_at),
        "owner": _owner(row, owners),
    }


def _owner(row: RunRow, owners: Ownership) -> str | None:
    """Whether somebody drives it: as in the column of `ps`."""
    if row.stuck:
        return "stuck"
    if row.status.is_final:
        return None
    return "live" if owners.is_live(row) else "interrupted"


def read_statuses(words: Sequence[str]) -> list[Status]:
    known = {status.value: status for status in Status}
    for word in words:
        if word not in known:
            raise BadRequest(f"{word[:40]!r} is not a status (expected one of {', '.join(known)})")
    return [known[word] for word in words]


def read_label(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise BadRequest(f"{text[:60]!r} is not a label (expected name=value)")
    return name, value
