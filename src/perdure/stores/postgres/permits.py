"""Permits in the transaction of a commit. Who gets one is the kernel's decision; here the scopes are locked for it."""

from collections.abc import Iterable, Sequence

from perdure.kernel import inputs
from perdure.kernel.permits import Request, grant
from perdure.kernel.values import Instant, RunId
from perdure.stores.postgres.session import Session
from perdure.stores.postgres.wire import INT, INTS, TEXT, TEXTS, Statement
from perdure.stores.protocol import Letter, PermitAsked, Transition

_OF_RUNS = Statement("SELECT scope, run, permit FROM permits WHERE run = ANY({})", TEXTS)
_LOCK = Statement(
    "SELECT pg_advisory_xact_lock(1346720324, place) FROM (SELECT DISTINCT hashtext(scope) AS place"
    " FROM unnest({}) AS scope ORDER BY place) AS places",
    TEXTS,
)
_REMOVE = Statement(
    "DELETE FROM permits USING unnest({}, {}, {}) AS n (scope, run, permit)"
    " WHERE permits.scope = n.scope AND permits.run = n.run AND permits.permit = n.permit",
    TEXTS,
    TEXTS,
    INTS,
)
_LIMITS = Statement("SELECT scope, capacity FROM limits WHERE scope = ANY({})", TEXTS)
_ASK = Statement(
    "INSERT INTO permits (scope, run, permit, priority, capacity, asked_at, granted, ageing)"
    " SELECT n.scope, n.run, n.permit, n.priority, n.capacity, n.asked_at, false, n.ageing"
    " FROM unnest({}, {}, {}, {}, {}, {}, {}) AS n (scope, run, permit, priority, capacity, asked_at, ageing)",
    TEXTS,
    TEXTS,
    INTS,
    INTS,
    INTS,
    INTS,
    INTS,
)
_PLACES = Statement(
    "SELECT coalesce((SELECT capacity FROM limits WHERE scope = {0}),"
    " (SELECT capacity FROM permits WHERE scope = {0} LIMIT 1)),"
    " (SELECT count(*) FROM permits WHERE scope = {0} AND granted),"
    " EXISTS (SELECT 1 FROM permits WHERE scope = {0} AND NOT granted AND ageing > 0)",
    TEXT,
)
_WAITING = (
    "SELECT run, permit, priority, asked_at, ageing FROM permits WHERE scope = {} AND NOT granted"
    " ORDER BY %s DESC, asked_at, run, permit LIMIT {}"
)
_BY_PRIORITY = Statement(_WAITING % "priority", TEXT, INT)
# Only where waiting counts is the order a matter of the moment, and all who wait have to be looked at.
_BY_AGE = Statement(
    _WAITING % "priority + CASE WHEN ageing > 0 THEN ({} - asked_at) / ageing ELSE 0 END", TEXT, INT, INT
)
_GRANT = Statement(
    "UPDATE permits SET granted = true FROM unnest({}, {}) AS n (run, permit)"
    " WHERE permits.scope = {} AND permits.run = n.run AND permits.permit = n.permit",
    TEXTS,
    INTS,
    TEXT,
)


def touches_permits(change: Transition) -> bool:
    return bool(change.permits_asked or change.permits_released)


def settle(session: Session, changes: Iterable[Transition], now: Instant) -> list[tuple[Letter, int]]:
    """Take back what these give back, write down what they ask for, and give free places away; letters to be sent."""
    changes = [change for change in changes if change.ended or touches_permits(change)]
    if not changes:
        return []
    returned = _returned(session, changes)
    asked = [(change, ask) for change in changes for ask in change.permits_asked]
    scopes = {scope for scope, _, _ in returned} | {ask.scope for _, ask in asked}
    lock(session, scopes)
    if returned:
        session.run(_REMOVE, *zip(*returned, strict=True))
    letters = _ask(session, asked) if asked else []
    for scope in sorted(scopes):
        letters += allocate(session, scope, now)
    return letters


def _returned(session: Session, changes: Sequence[Transition]) -> list[tuple[str, str, int]]:
    ended = {change.run for change in changes if change.ended}
    released = {(change.run, permit) for change in changes for permit in change.permits_released}
    runs = ended | {run for run, _ in released}
    rows = session.run(_OF_RUNS, sorted(runs)) if runs else []
    return [(scope, run, permit) for scope, run, permit in rows if run in ended or (run, permit) in released]


def lock(session: Session, scopes: Iterable[str]) -> None:
    """One allocator per scope at a time, in one order, until the transaction ends."""
    session.run(_LOCK, sorted(scopes))


def _ask(session: Session, asked: Sequence[tuple[Transition, PermitAsked]]) -> list[tuple[Letter, int]]:
    configured = dict(session.run(_LIMITS, sorted({ask.scope for _, ask in asked})))
    granted, waiting = [], []
    for change, ask in asked:
        known = [limit for limit in (configured.get(ask.scope), ask.limit) if limit is not None]
        if not known:
            granted.append(_told(change.run, ask.permit, ask.asked_at, change.partition))
        else:
            waiting.append((ask.scope, change.run, ask.permit, ask.priority, min(known), ask.asked_at, ask.ageing))
    if waiting:
        session.run(_ASK, *zip(*waiting, strict=True))
    return granted


def allocate(session: Session, scope: str, now: Instant) -> list[tuple[Letter, int]]:
    """Give the free places of a scope away, which must be locked."""
    ((capacity, held, some_age),) = session.run(_PLACES, scope)
    if capacity is None or capacity <= held:
        return []
    free = capacity - held
    waiting = session.run(_BY_AGE, scope, now, free) if some_age else session.run(_BY_PRIORITY, scope, free)
    chosen = grant(capacity, held, [Request(*row) for row in waiting], now)
    if chosen:
        session.run(_GRANT, [one.run for one in chosen], [one.permit for one in chosen], scope)
    return [_told(one.run, one.permit, max(now, one.asked_at), 0) for one in chosen]


def _told(run: str, permit: int, at: Instant, sender: int) -> tuple[Letter, int]:
    return Letter(RunId(run), at, inputs.encode(inputs.PermitGrant(permit))), sender
