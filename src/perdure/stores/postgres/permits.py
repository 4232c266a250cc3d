"""Permits in the transaction of a commit. Who gets one is the kernel's decision; here the scopes are locked for it."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from perdure.kernel import inputs
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.tasks.permits import PermitRequest, grant
from perdure.stores.commit_types import Message, Transition
from perdure.stores.postgres.session import Session, Step
from perdure.stores.postgres.wire import INT, INTS, TEXTS, Statement

# What runs give back: everything when they end, and single ones.
_RETURNED = (
    "SELECT scope, run, permit FROM permits WHERE run = ANY({0})"
    " UNION SELECT p.scope, p.run, p.permit FROM unnest({1}, {2}) AS n (run, permit)"
    " JOIN permits p ON p.run = n.run AND p.permit = n.permit"
)
_LOCK_TOUCHED = Statement(
    "SELECT pg_advisory_xact_lock(1346720324, place) FROM (SELECT DISTINCT hashtext(scope) AS place"
    f" FROM (SELECT scope FROM ({_RETURNED}) AS returned UNION ALL SELECT scope FROM unnest({{3}}) AS scope) AS touched"
    " ORDER BY place) AS places",
    TEXTS,
    TEXTS,
    INTS,
    TEXTS,
)
_LOCK = Statement(
    "SELECT pg_advisory_xact_lock(1346720324, place) FROM (SELECT DISTINCT hashtext(scope) AS place"
    " FROM unnest({}) AS scope ORDER BY place) AS places",
    TEXTS,
)
_REMOVE = Statement(
    f"DELETE FROM permits USING ({_RETURNED}) AS n WHERE permits.scope = n.scope AND permits.run = n.run"
    " AND permits.permit = n.permit RETURNING permits.scope",
    TEXTS,
    TEXTS,
    INTS,
)
# The lower one of two limits counts; where there is none, there is no row.
_ASK = Statement(
    "INSERT INTO permits (scope, run, permit, priority, capacity, asked_at, granted, ageing)"
    " SELECT n.scope, n.run, n.permit, n.priority, least(l.capacity, n.capacity), n.asked_at, false, n.ageing"
    " FROM unnest({}, {}, {}, {}, {}, {}, {}) AS n (scope, run, permit, priority, capacity, asked_at, ageing)"
    " LEFT JOIN limits l ON l.scope = n.scope WHERE l.capacity IS NOT NULL OR n.capacity IS NOT NULL"
    " RETURNING permits.run, permits.permit",
    TEXTS,
    TEXTS,
    INTS,
    INTS,
    INTS,
    INTS,
    INTS,
)
_WAITING = (
    "(SELECT run, permit, priority, asked_at, ageing FROM permits WHERE scope = s.scope AND NOT granted AND %s"
    " ORDER BY %s DESC, asked_at, run, permit LIMIT greatest(coalesce(p.capacity - p.held, 0), 0))"
)
# Only where waiting counts is the order a matter of the moment, and all who wait have to be looked at.
_BY_PRIORITY = _WAITING % ("NOT p.some_age", "priority")
_BY_AGE = _WAITING % ("p.some_age", "priority + CASE WHEN ageing > 0 THEN ({1} - asked_at) / ageing ELSE 0 END")
_FOREMOST = Statement(
    "SELECT s.scope, p.capacity, p.held, w.run, w.permit, w.priority, w.asked_at, w.ageing"
    " FROM unnest({0}) AS s (scope)"
    " CROSS JOIN LATERAL (SELECT coalesce((SELECT capacity FROM limits WHERE scope = s.scope),"
    " (SELECT capacity FROM permits WHERE scope = s.scope LIMIT 1)) AS capacity,"
    " (SELECT count(*) FROM permits WHERE scope = s.scope AND granted) AS held,"
    " EXISTS (SELECT 1 FROM permits WHERE scope = s.scope AND NOT granted AND ageing > 0) AS some_age) AS p"
    f" CROSS JOIN LATERAL ({_BY_PRIORITY} UNION ALL {_BY_AGE}) AS w",
    TEXTS,
    INT,
)
_GRANT = Statement(
    "UPDATE permits SET granted = true FROM unnest({}, {}, {}) AS n (scope, run, permit)"
    " WHERE permits.scope = n.scope AND permits.run = n.run AND permits.permit = n.permit",
    TEXTS,
    TEXTS,
    INTS,
)


def touches_permits(change: Transition) -> bool:
    return bool(change.permits_asked or change.permits_released)


class PermitSettlement:
    """What a batch gives back and asks for, in two trips: lock and write down, then look who is foremost.

    Looking comes in a trip of its own, for which scopes were given back is known only then. All of it cannot be one
    statement: that sees the rows as they were when it began, and would give away again what others have got while it
    waited for the lock.
    """

    def __init__(self, changes: Iterable[Transition]) -> None:
        touching = [change for change in changes if change.ended or touches_permits(change)]
        self._asked = [(change, ask) for change in touching for ask in change.permits_asked]
        ended = sorted(change.run for change in touching if change.ended)
        released = sorted((change.run, permit) for change in touching for permit in change.permits_released)
        self._returned = (ended, [run for run, _ in released], [permit for _, permit in released])
        self._gives_back = bool(ended or released)

    @property
    def first(self) -> list[Step]:
        steps: list[Step] = []
        if self._gives_back or self._asked:
            steps.append((_LOCK_TOUCHED, (*self._returned, sorted({ask.scope for _, ask in self._asked}))))
        if self._gives_back:
            steps.append((_REMOVE, self._returned))
        if self._asked:
            rows = [
                (ask.scope, change.run, ask.permit, ask.priority, ask.limit, ask.asked_at, ask.ageing)
                for change, ask in self._asked
            ]
            steps.append((_ASK, list(zip(*rows, strict=True))))
        return steps

    def read(self, answers: Sequence[Sequence[tuple[Any, ...]]]) -> tuple[set[str], list[tuple[Message, int]]]:
        """From what the first trip has answered: scopes in which places may be free, and what is granted anyway."""
        rest = list(answers[1:])
        scopes = {scope for (scope,) in rest.pop(0)} if self._gives_back else set()
        limited = set(rest.pop(0)) if self._asked else set()
        messages = []
        for change, ask in self._asked:
            if (change.run, ask.permit) in limited:
                scopes.add(ask.scope)
            else:
                messages.append(_told(change.run, ask.permit, ask.asked_at, change.partition))
        return scopes, messages


def foremost_requests(scopes: Iterable[str], now: Instant) -> Step:
    return _FOREMOST, (sorted(scopes), now)


def grants(foremost: Sequence[tuple[Any, ...]], now: Instant) -> tuple[list[Step], list[tuple[Message, int]]]:
    """Who gets the free places of the scopes that were looked at: what is written, and the messages."""
    chosen: list[tuple[str, PermitRequest]] = []
    for (scope, capacity, held), rows in groupby(sorted(foremost), itemgetter(0, 1, 2)):
        waiting = [PermitRequest(*row[3:]) for row in rows]
        chosen += [(scope, permit) for permit in grant(capacity, held, waiting, now)]
    if not chosen:
        return [], []
    values = (
        [scope for scope, _ in chosen],
        [request.run for _, request in chosen],
        [request.permit for _, request in chosen],
    )
    return [(_GRANT, values)], [
        _told(request.run, request.permit, max(now, request.asked_at), 0) for _, request in chosen
    ]


def lock(session: Session, scopes: Iterable[str]) -> None:
    """One allocator per scope at a time, in one order, until the transaction ends."""
    session.run(_LOCK, sorted(scopes))


def allocate(session: Session, scope: str, now: Instant) -> list[tuple[Message, int]]:
    """Give the free places of a scope away, which must be locked."""
    statement, values = foremost_requests([scope], now)
    steps, messages = grants(session.run(statement, *values), now)
    for granting, step_values in steps:
        session.run(granting, *step_values)
    return messages


def _told(run: str, permit: int, at: Instant, sender: int) -> tuple[Message, int]:
    return Message(RunId(run), at, inputs.encode(inputs.PermitGrant(permit))), sender
