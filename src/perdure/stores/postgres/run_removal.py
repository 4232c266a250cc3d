"""Removing what has ended, with all it has, in one transaction per call.

A run's row goes first: it is what a reopening would change, so the two cannot both succeed. A document goes in two
steps, because it may be on its way to a child that is not there yet, or known to a writer that is about to name it: it
is marked when no run names it, and removed much later if it is still marked and no message is that old.
"""

from collections.abc import Mapping, Sequence

from perdure.kernel.json_values.values import SECOND, Instant, RunId
from perdure.stores.postgres import change_feed, names
from perdure.stores.postgres.session import Session
from perdure.stores.postgres.wire import BLOB, INT, INTS, TEXT, TEXTS, Statement
from perdure.stores.run_removal import LastView

UNUSED_FOR: Instant = 3_600 * SECOND  # much longer than `writing.PROGRAM_IS_KNOWN`
FORGOTTEN_AT_ONCE = 1_000
MESSAGES_UP_TO: Instant = 1_800 * SECOND

_NO_WORDS = "NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.run = r.id AND inbox.is_word = 1)"
PRUNABLE = Statement(
    "SELECT id FROM runs r WHERE ended_at < {0} AND NOT EXISTS"
    " (SELECT 1 FROM runs c WHERE c.parent = r.id) AND (parent IS NULL OR NOT EXISTS"
    " (SELECT 1 FROM runs p WHERE p.id = r.parent AND (p.ended_at IS NULL OR p.ended_at >= {0})))"
    f" AND {_NO_WORDS} ORDER BY ended_at LIMIT {{1}}",
    INT,
    INT,
)
_LOCK = Statement("SELECT 1 FROM runs WHERE id = ANY({}) ORDER BY id FOR UPDATE", TEXTS)
_PRUNE = Statement(
    f"WITH gone AS (DELETE FROM runs r WHERE id = ANY({{0}}) AND ended_at < {{1}} AND {_NO_WORDS} RETURNING *),"
    f" told AS ({change_feed.REMOVED.format(now='{2}', view='NULL')}) SELECT ended_at, number, id, partition FROM gone",
    TEXTS,
    INT,
    INT,
)
_REMOVE = Statement(
    "WITH gone AS (DELETE FROM runs r WHERE id = {0} AND ended_at < {2}"
    f" AND NOT EXISTS (SELECT 1 FROM runs c WHERE c.parent = r.id) AND {_NO_WORDS}"
    " AND coalesce({3} = (SELECT max(seq) FROM log WHERE run = r.number), {3} IS NULL) RETURNING *),"
    f" told AS ({change_feed.REMOVED.format(now='{1}', view='{4}')}) SELECT number, id, partition FROM gone",
    TEXT,
    INT,
    INT,
    INT,
    BLOB,
)
_ERASE = "DELETE FROM {table} WHERE run = ANY({{}})"
_WITH_NUMBERS = ("log", "snapshots", "large_values", "stream_rows", "task_logs")
_OF_NUMBERS = [Statement(_ERASE.format(table=table), INTS) for table in _WITH_NUMBERS]
_OF_RUNS = [Statement(_ERASE.format(table=table), TEXTS) for table in ("permits", "tasks")]
_MESSAGES = Statement("DELETE FROM inbox WHERE partition = ANY({}) AND run = ANY({})", INTS, TEXTS)
_MARK = Statement(
    "UPDATE programs SET unused_since = {} WHERE unused_since IS NULL"
    " AND digest IN (SELECT digest FROM programs EXCEPT SELECT program FROM runs)",
    INT,
)
_SWEEP = Statement(
    "DELETE FROM programs WHERE unused_since < {} AND NOT EXISTS (SELECT 1 FROM runs WHERE program = digest)"
    " AND NOT EXISTS (SELECT 1 FROM inbox WHERE at < {})",
    INT,
    INT,
)
_FORGET = Statement(
    "DELETE FROM memories WHERE key IN (SELECT key FROM memories WHERE expires_at <= {} LIMIT {})", INT, INT
)


def prune(session: Session, ended_before: Instant, limit: int, now: Instant) -> list[RunId]:
    """A run goes when it has ended and nothing that descends from it is left: leaves first."""
    with session.transaction():
        ripe = [id for (id,) in session.run(PRUNABLE, ended_before, limit)]
        removed = [(number, id, home) for _, number, id, home in sorted(_deleted(session, ripe, ended_before, now))]
        _erase(session, removed)
        if not ripe:  # the last call of a series: what nobody names any more
            session.run(_MARK, now)
            session.run(_SWEEP, now - UNUSED_FOR, now - MESSAGES_UP_TO)
        session.run(_FORGET, now, FORGOTTEN_AT_ONCE)
    return [id for _, id, _ in removed]


def remove(
    session: Session, runs: Sequence[RunId], views: Mapping[RunId, LastView], until: Instant, now: Instant
) -> list[RunId]:
    removed = []
    with session.transaction():
        session.run(_LOCK, runs)
        for run in runs:  # one by one: a parent can go once its children have, and the order is the caller's
            view = views.get(run)
            last = (None, None) if view is None else (view.events, view.body)
            removed += session.run(_REMOVE, run, now, until, *last)
        _erase(session, removed)
    return [id for _, id, _ in removed]


def _deleted(
    session: Session, ripe: Sequence[RunId], ended_before: Instant, now: Instant
) -> list[tuple[Instant, int, RunId, int]]:
    """Locked first: a message is either seen by the next statement, or its sender finds no run."""
    if not ripe:
        return []
    session.run(_LOCK, ripe)
    return session.run(_PRUNE, ripe, ended_before, now)


def _erase(session: Session, removed: Sequence[tuple[int, RunId, int]]) -> None:
    if not removed:
        return
    numbers, ids, homes = zip(*removed, strict=True)
    for statement in _OF_NUMBERS:
        session.run(statement, numbers)
    for statement in _OF_RUNS:
        session.run(statement, ids)
    session.run(names.ERASE, ids)
    session.run(_MESSAGES, sorted(set(homes)), ids)
