"""Histories of runs by page: what was told of a run is not told again for its next page.

A language tells the history of a run from its first event. A reader that has told a part of it goes on from there,
for the next page or for whoever follows the run; the latest readers are kept.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary, ref

from perdure.engine.decision_threads import done_aside
from perdure.engine.runs.run_views import bytes_of, numbered, senders_of
from perdure.kernel.codec import decode_turns
from perdure.kernel.dialect import Dialect
from perdure.kernel.events import Event
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.secrets.secret_masking import Mask
from perdure.stores.protocol import RunRow, Store

ROWS_AT_ONCE = 200  # of a log
RAW_ROWS_AT_ONCE = 20
WORTH_KEEPING = 1 << 16  # bytes of a log that were told; less is told again
MOST_SHOWN = 1_000  # events that are kept of a history that was read to its end
MOST_KEPT = 16
MOST_BYTES = 64 << 20  # of logs that were told by those that are kept

NOBODY: dict[str, Any] = {}

Rows = Sequence[tuple[int, bytes]]


class _HistoryReader:
    """A history that is told up to some row of the log, and the last events that were told."""

    __slots__ = ("bytes", "recorded", "rest", "run", "shown", "tell")

    def __init__(self, run: tuple[RunId, Instant], tell: Callable[[Instant, Event], Iterable[dict[str, Any]]]) -> None:
        self.run = run
        self.tell = tell
        self.recorded = 0  # the last event of the log that was told
        self.bytes = 0
        self.rest: list[tuple[int, bytes]] = []  # rows of the log that were read and are not told yet
        self.shown: list[dict[str, Any]] = []

    @property
    def floor(self) -> int:
        """The event behind which it can go on."""
        return int(self.shown[0]["seq"]) - 1 if self.shown else 0

    @property
    def last(self) -> int:
        return self.floor + len(self.shown)

    def read(self, dialect: Dialect, rows: Rows, until: int | None) -> None:
        """Tell these rows, or as many of them as lead to that event."""
        for place, (last, row) in enumerate(rows):
            if until is not None and self.last >= until:
                self.rest = list(rows[place:])
                return
            turns = decode_turns(dialect, row)
            number = last - sum(len(events) for _, events in turns)
            senders = senders_of(turns, number)
            for at, events in turns:
                for event in events:
                    number += 1
                    who = senders.get(number, NOBODY)
                    self.shown += [item | who for item in self.tell(at, event)]
            self.recorded = last
            self.bytes += len(row)
        self.rest = []

    def forget(self, until: int) -> None:
        """All but one of the events up to that one: it says where the others begin."""
        del self.shown[: min(max(0, until - self.floor), len(self.shown) - 1)]

    def behind(self, after: int, limit: int | None) -> list[dict[str, Any]]:
        first = after - self.floor
        return self.shown[first:] if limit is None else self.shown[first : first + limit]


class HistoryPages:
    """The histories of a store's runs."""

    def __init__(self, store: Store) -> None:
        self._store = ref(store)  # they are kept as long as the store is
        self._kept: OrderedDict[int, _HistoryReader] = OrderedDict()  # by number, the one that was used last at the end
        self._number = 0

    async def read(
        self, dialect: Dialect, row: RunRow, mask: Mask, after: int, *, is_own: bool, limit: int | None
    ) -> list[dict[str, Any]]:
        """Up to `limit` events behind `after`: in the language's event names (`is_own`), or in the kernel's."""
        store = self._store()
        assert store is not None, "whoever reads has it"
        if not is_own:
            return await _raw_events(store, dialect, row.id, mask, after, limit)
        reader = self._take(dialect, row, after)
        at_once = ROWS_AT_ONCE if limit is not None else 10 * ROWS_AT_ONCE
        until = None if limit is None else after + limit
        while until is None or reader.last < until:
            rest = reader.rest
            rows = rest or await store.history(row.id, reader.recorded, at_once)
            if rows:
                await done_aside(bytes_of(rows), partial(reader.read, dialect, rows, until))
            if limit is not None:
                reader.forget(after)
            if not rest and len(rows) < at_once:
                break
        page = [{**item} for item in reader.behind(after, limit)]
        reader.forget(after if limit is not None else max(after, reader.last - MOST_SHOWN))
        self._keep(reader)
        return await done_aside(reader.bytes, partial(list, map(mask.data, page))) if mask.hides else page

    def _take(self, dialect: Dialect, row: RunRow, after: int) -> _HistoryReader:
        """Nobody else goes on with it meanwhile."""
        run = (row.id, row.created_at)
        readers = [(reader.floor, number) for number, reader in self._kept.items() if reader.run == run]
        fitting = [place for place in readers if place[0] <= after]
        if fitting:
            return self._kept.pop(max(fitting)[1])
        return _HistoryReader(run, dialect.history_teller(row.id))

    def _keep(self, reader: _HistoryReader) -> None:
        if reader.bytes < WORTH_KEEPING:
            return
        self._number += 1
        self._kept[self._number] = reader
        while len(self._kept) > 1 and (
            len(self._kept) > MOST_KEPT or sum(kept.bytes for kept in self._kept.values()) > MOST_BYTES
        ):
            self._kept.popitem(last=False)


async def _raw_events(
    store: Store, dialect: Dialect, run: RunId, mask: Mask, after: int, limit: int | None
) -> list[dict[str, Any]]:
    """A row has one event at least, and may have thousands."""
    if limit is None:
        rows = await store.history(run, after)
        return await done_aside(bytes_of(rows), lambda: list(_shown_events(dialect, rows, mask, after)))
    events: list[dict[str, Any]] = []
    while len(events) < limit:
        at_once = min(RAW_ROWS_AT_ONCE, limit - len(events))
        rows = await store.history(run, after, at_once)
        more = islice(_shown_events(dialect, rows, mask, after), limit - len(events))
        events += await done_aside(bytes_of(rows), partial(list, more))
        if len(rows) < at_once:
            break
        after = rows[-1][0]
    return events


def _shown_events(dialect: Dialect, rows: Rows, mask: Mask, after: int) -> Iterator[dict[str, Any]]:
    for last, row in rows:
        for event in _events_of_row(dialect, last, row):
            if event["seq"] > after:
                yield mask.data(event)


def _events_of_row(dialect: Dialect, last: int, row: bytes) -> Iterator[dict[str, Any]]:
    turns = decode_turns(dialect, row)
    number = last - sum(len(events) for _, events in turns)
    senders = senders_of(turns, number)
    for at, events in turns:
        for event in events:
            number += 1
            yield numbered(number, at, event) | senders.get(number, NOBODY)


_histories: WeakKeyDictionary[Store, HistoryPages] = WeakKeyDictionary()


def histories_of(store: Store) -> HistoryPages:
    """Those that all clients of the store share."""
    if store not in _histories:
        _histories[store] = HistoryPages(store)
    return _histories[store]
