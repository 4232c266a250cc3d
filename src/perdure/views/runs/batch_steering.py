"""Steering several runs: those that are named, or all that a filter matches, in bounded pieces.

Each run is answered for itself; what one of them refuses does not keep the others. A run that is steered under a key
keeps the key as long as it exists: a call that is repeated steers nobody twice.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from perdure.engine.runs.message_sending import SendResult, not_ended
from perdure.kernel.errors import PerdureError, RunNotFound
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import OPEN_STATUSES, Status
from perdure.stores.errors import StoreError
from perdure.stores.protocol import RunFilter, RunRow
from perdure.views.errors import BadRequest
from perdure.views.runs.run_list import Ownership, with_pending_messages
from perdure.views.runs.run_pages import FIRST, page_mark, read_page_cursor, write_page_cursor

if TYPE_CHECKING:
    from perdure.engine.client import Client

PIECE = 1_000  # runs that one call handles
COUNTED = 10_000  # runs that a count looks at
AT_ONCE = 8  # runs that are steered at the same time

C = TypeVar("C", bound="Resolver")  # whoever runs are resolved by, and messages sent through

Send = Callable[["Client", RunId], Awaitable[SendResult]]


class Resolver(Protocol):
    async def resolve(self, name: str, namespaces: Sequence[str] | None = None) -> RunId: ...


class Verb(StrEnum):
    CANCEL = "cancel"
    REDRIVE = "redrive"
    PAUSE = "pause"
    UNPAUSE = "unpause"
    SIGNAL = "signal"
    DELETE = "delete"


CONCERNED: Mapping[Verb, Sequence[Status]] = {
    Verb.CANCEL: OPEN_STATUSES,
    Verb.REDRIVE: (Status.FAILED, Status.TIMED_OUT),
    Verb.PAUSE: (Status.RUNNING, Status.WAITING),
    Verb.UNPAUSE: (Status.PAUSED,),
    Verb.SIGNAL: OPEN_STATUSES,
    Verb.DELETE: tuple(status for status in Status if status.is_final),
}
"""The statuses that a filter means if it names none; all runs of a deletion are all, and open ones are refused."""


class Selection(msgspec.Struct, frozen=True):
    """Runs by what they have in common. `everything` stands for a filter that asks for nothing."""

    statuses: Sequence[Status] = ()
    name: str | None = None
    language: str | None = None
    labels: dict[str, str] = {}
    created_after: Instant | None = None
    created_before: Instant | None = None
    parent: RunId | None = None
    text: str | None = None  # as in lists: the beginning of an id or of a name, or a label's whole value
    namespaces: Sequence[str] = ()  # only runs of these; none: of all that are meant otherwise
    with_children: bool = False  # also runs that other runs have started
    everything: bool = False
    within: Sequence[str] | None = None  # the namespaces of whoever asks; None: all

    @property
    def is_empty(self) -> bool:
        texts = (self.name, self.language, self.parent, (self.text or "").strip())
        is_in_time = self.created_after is not None or self.created_before is not None
        return not (self.statuses or self.labels or is_in_time or any(texts))

    def check(self) -> None:
        if self.is_empty and not (self.everything or self.namespaces):
            raise BadRequest("an empty filter selects nothing; say that all runs are meant")
        if self.everything and not self.is_empty:
            raise BadRequest("a filter, or all runs: not both")

    @property
    def seen_namespaces(self) -> Sequence[str] | None:
        """Those that are asked for, as far as whoever asks may see them; None: all."""
        if not self.namespaces:
            return self.within
        return [name for name in self.namespaces if self.within is None or name in self.within]


class Failure(msgspec.Struct, frozen=True):
    id: str
    error: PerdureError


class BatchAnswer(msgspec.Struct, frozen=True):
    steered: Sequence[tuple[RunId, SendResult | None]] = ()  # no result in a dry run
    failed: Sequence[Failure] = ()
    count: int = 0  # of those that matched; a dry run counts more than it lists
    next: str = ""  # the cursor for the next piece; empty if this was the last
    dry_run: bool = False
    more: bool = False  # a dry run stopped counting

    @property
    def ids(self) -> list[RunId]:
        return [run for run, _ in self.steered]

    def plain(self) -> dict[str, Any]:
        failed = [{"id": each.id, "code": each.error.code, "message": str(each.error)} for each in self.failed]
        answer = {"count": self.count, "ids": self.ids, "failed": failed, "dry_run": self.dry_run}
        if self.dry_run:
            answer["more"] = self.more
        return answer | ({"next": self.next} if self.next else {})

    def joined(self, later: "BatchAnswer") -> "BatchAnswer":
        """Two pieces as one answer."""
        return msgspec.structs.replace(
            later,
            steered=[*self.steered, *later.steered],
            failed=[*self.failed, *later.failed],
            count=self.count + later.count,
        )


async def steer_named(
    client: C,
    names: Sequence[str],
    send: Callable[[C, RunId], Awaitable[SendResult]],
    *,
    namespaces: Sequence[str] | None = None,
    dry_run: bool = False,
) -> BatchAnswer:
    """The runs of these ids, names or unambiguous beginnings of ids, in these namespaces; each once."""
    runs: dict[RunId, None] = {}
    unknown: list[Failure] = []
    for name in names:
        try:
            runs[await client.resolve(name, namespaces)] = None
        except RunNotFound as error:
            unknown.append(Failure(name, error))
    answer = _planned(list(runs)) if dry_run else await _steer(client, list(runs), send)
    return msgspec.structs.replace(
        answer, failed=[*unknown, *answer.failed], count=answer.count + len(unknown), dry_run=dry_run
    )


async def steer_piece(
    client: "Client", selection: Selection, verb: Verb, send: Send, *, cursor: str = "", piece: int = PIECE
) -> BatchAnswer:
    """Up to `piece` of the runs that match when they are looked at, the latest first; `cursor` goes on behind them."""
    selection.check()
    mark = page_mark(["batch", verb, selection])
    place = read_page_cursor(cursor, mark, (int, str)) if cursor else FIRST
    rows, behind = await _matching(client, selection, verb, (place[0], RunId(place[1])), piece)
    answer = await _steer(client, [row.id for row in rows], send)
    return msgspec.structs.replace(answer, next="" if behind is None else write_page_cursor(behind, mark))


async def plan(client: "Client", selection: Selection, verb: Verb) -> BatchAnswer:
    """What would be steered, counted up to a bound; nothing is changed."""
    selection.check()
    ids: list[RunId] = []
    failed: list[Failure] = []
    count = 0
    behind: tuple[Instant, RunId] | None = None
    while True:
        rows, behind = await _matching(client, selection, verb, behind or FIRST, PIECE)
        count += len(rows)
        refused = {row.id: None for row in rows if verb is Verb.DELETE and not row.status.is_final}
        failed += [Failure(run, not_ended(run)) for run in refused][: PIECE - len(failed)]
        ids += [row.id for row in rows if row.id not in refused][: PIECE - len(ids)]
        if behind is None or count >= COUNTED:
            return msgspec.structs.replace(_planned(ids), failed=failed, count=count, more=behind is not None)


def _planned(ids: Sequence[RunId]) -> BatchAnswer:
    return BatchAnswer([(run, None) for run in ids], count=len(ids), dry_run=True)


async def _matching(
    client: "Client", selection: Selection, verb: Verb, behind: tuple[Instant, RunId], piece: int
) -> tuple[list[RunRow], tuple[Instant, RunId] | None]:
    """Some rows, and the place behind them, if there may be more; what is pending for a run counts as its status."""
    concerned = tuple(Status) if verb is Verb.DELETE and selection.everything else CONCERNED[verb]
    statuses = frozenset(selection.statuses or concerned)
    query = RunFilter(
        statuses=sorted(statuses if statuses.isdisjoint(OPEN_STATUSES) else statuses.union(OPEN_STATUSES)),
        name=selection.name,
        language=selection.language,
        labels=selection.labels,
        created_after=selection.created_after,
        created_before=selection.created_before,
        parent=selection.parent,
        text=selection.text,
        namespaces=selection.seen_namespaces,
        roots_only=not selection.with_children and selection.parent is None,
        limit=piece,
        behind=behind,
    )
    rows = await client.search(query)
    shown, _ = await with_pending_messages(client, rows, await Ownership.of(client, rows))
    place = (rows[-1].created_at, rows[-1].id) if len(rows) == piece else None
    return [row for row in shown if row.status in statuses], place


async def _steer(client: C, runs: Sequence[RunId], send: Callable[[C, RunId], Awaitable[SendResult]]) -> BatchAnswer:
    steered: list[tuple[RunId, SendResult | None]] = []
    failed: list[Failure] = []
    for first in range(0, len(runs), AT_ONCE):
        some = runs[first : first + AT_ONCE]
        for run, result in zip(some, await asyncio.gather(*(_sent(client, run, send) for run in some)), strict=True):
            if isinstance(result, PerdureError):
                failed.append(Failure(run, result))
            else:
                steered.append((run, result))
    return BatchAnswer(steered, failed, len(runs))


async def _sent(client: C, run: RunId, send: Callable[[C, RunId], Awaitable[SendResult]]) -> SendResult | PerdureError:
    """A store that fails ends the call; whatever else is wrong concerns this run alone."""
    try:
        return await send(client, run)
    except StoreError:
        raise
    except PerdureError as error:
        return error
