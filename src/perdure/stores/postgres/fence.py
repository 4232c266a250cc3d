"""The fence of a PostgreSQL store: what makes a commit of a former owner fail (invariant 21).

    register    a server inserts its row in `servers`; the row has an epoch
    commit      locks that row (FOR KEY SHARE) and writes only if it is there with the epoch that the writer knows
    take-over   deletes or changes the row: it waits for commits that hold the lock, and all later ones write nothing

One row fences a server as a whole. A server that hands a partition over fences itself: it commits nothing to it.

A commit also writes nothing that does not continue the log of its run: whoever has an old state of a run in memory is
treated as one who has been taken over, drops what it has in memory and joins again.
"""

from perdure.stores.postgres.session import Session
from perdure.stores.postgres.wire import INT, INTS, Kind, Statement

Fence = tuple[int, int]
"""The row of our server in `servers`: its id, and the epoch under which it was registered."""

_FENCE_SQL = "SELECT 1 FROM servers WHERE id = {{}} AND epoch = {{}}{also} FOR KEY SHARE"
_NOTHING_NEWER = (
    "",
    " AND NOT EXISTS (SELECT 1 FROM log WHERE run = {} AND seq > {})",
    " AND NOT EXISTS (SELECT 1 FROM unnest({}, {}) AS b (run, base),"
    " LATERAL (SELECT 1 FROM log WHERE log.run = b.run AND log.seq > b.base LIMIT 1) AS newer)",
)
_BASE_KINDS: tuple[tuple[Kind, ...], ...] = ((), (INT, INT), (INTS, INTS))

_FENCE = Statement(_FENCE_SQL.format(also=""), INT, INT)


def fence_sql(logs: int) -> tuple[str, list[Kind]]:
    """A row, locked until the end of the transaction, if the server has not been taken over; else none.

    Nor is there one if a log that is added to has an event behind the one given. `logs`: none, one, several (2).
    """
    return _FENCE_SQL.format(also=_NOTHING_NEWER[logs]), [INT, INT, *_BASE_KINDS[logs]]


def hold_fence(session: Session, fence: Fence) -> bool:
    """Whether the server has not been taken over; then nobody can take it over before this transaction ends."""
    return bool(session.run(_FENCE, *fence))
