"""The clock of a store on PostgreSQL, as this process counts it.

The process counts on by its own boot time and follows the database slowly. When the two are more than a second apart,
one of them has stood still or was set: that is settled, in one row of the database, before any lease is compared.
"""

import time

from perdure.kernel.json_values.values import SECOND, Instant
from perdure.stores.clocks import refuse_behind, sources
from perdure.stores.postgres.session import Session
from perdure.stores.postgres.wire import INT, TEXT, Statement

JUMP: Instant = SECOND
"""A larger difference is not the usual drift of clocks."""

EVERYONE = "perdure_everyone"
"""The channel on which all servers listen; whoever hears of it renews its lease."""

MEASURED = 5  # answers, where the count is set
PAUSE = 0.02  # seconds between looks whether anybody has answered
SLOWNESS = 100  # one part in so many of the passed time is what a count follows by

SHIFT = "coalesce((SELECT shift FROM clock), 0)"

_READ = Statement(f"SELECT instant(), {SHIFT}")
_LOCK = Statement("INSERT INTO clock DEFAULT VALUES ON CONFLICT (id) DO UPDATE SET id = true")
_SHIFT = Statement("UPDATE clock SET shift = shift + {} RETURNING shift", INT)
_IS_DOUBTFUL = Statement(  # every lease that is kept is renewed after a third of its time
    f"SELECT instant() - renewed NOT BETWEEN -{JUMP} AND (until - renewed) / 3 + {JUMP}"
    " AND EXISTS (SELECT 1 FROM pg_stat_activity JOIN servers s ON s.token = split_part(application_name, ' ', 1))"
    " FROM servers ORDER BY renewed DESC LIMIT 1"
)
_RENEWED = Statement("SELECT max(renewed) FROM servers WHERE token <> {}", TEXT)
_LAST = Statement(
    "SELECT instant(), wall(), greatest(0, (SELECT seen FROM clock), (SELECT max(created_at + 0) FROM runs),"
    " (SELECT max(ended_at) FROM runs WHERE ended_at IS NOT NULL), (SELECT max(renewed) FROM servers))"
)


class DatabaseClock:
    """Read by several threads: what belongs together is replaced at once."""

    def __init__(self) -> None:
        self._state: tuple[Instant, Instant, Instant] = (sources.boot(), sources.wall(), 0)
        self.shift: Instant = 0

    def now(self) -> Instant:
        began, start, behind = self._state
        passed = sources.boot() - began
        most = passed // SLOWNESS
        return start + passed + min(max(behind, -most), most)

    def wall(self) -> Instant:
        return self.now() - self.shift

    def set(self, at: Instant, shift: Instant) -> None:
        self._state = (sources.boot(), at, 0)
        self.shift = shift

    def compare(self, at: Instant, shift: Instant, sent_at: Instant) -> Instant:
        """How far the store's clock has jumped ahead of this count; 0: not at all, and the count follows it.

        `at` was read between `sent` and now, by boot time.
        """
        boot = sources.boot()
        doubt = (boot - sent_at) // 2
        ahead = at + doubt - self.now()
        if abs(ahead) - doubt > JUMP:
            return ahead
        self._state = (boot, self.now(), ahead if abs(ahead) > doubt else 0)
        self.shift = shift
        return 0


def begin(session: Session, count: DatabaseClock, shown: str, *, checks: bool) -> None:
    """Count as the store's clock says now. With `checks`, never from before the last recorded instant."""
    if checks:
        _await_renewal(session)
    ((at, wall, last),) = session.run(_LAST)
    if checks:
        refuse_behind(shown, wall, last)
        if at < last - JUMP:  # it was set back while nobody was there to notice
            with session.transaction():
                session.run(_LOCK)
                ((at, _, last),) = session.run(_LAST)
                if at < last - JUMP:
                    session.run(_SHIFT, last - at)
    _measure(session, count)


def _await_renewal(session: Session) -> None:
    """Either all servers are gone, or the clock was set and nobody has noticed yet: who lives sets it right.

    Whoever counted from such a clock would bring the jump along, and find everybody else silent. Where no server has a
    connection there is nobody to wait for.
    """
    end = sources.boot() + JUMP
    is_asked = False
    while session.run(_IS_DOUBTFUL) == [(True,)] and sources.boot() < end:
        if not is_asked:
            session.execute(f"NOTIFY {EVERYONE}")
            is_asked = True
        time.sleep(PAUSE)


def _measure(session: Session, count: DatabaseClock) -> None:
    """Set the count by the quickest of a few answers: it may be wrong by half of what that took."""
    best: tuple[Instant, Instant, Instant] | None = None
    for _ in range(MEASURED):
        sent_at = sources.boot()
        ((at, shift),) = session.run(_READ)
        received = sources.boot()
        if best is None or received - sent_at < best[0]:
            best = (received - sent_at, at - (sent_at + received) // 2, shift)
    assert best is not None
    count.set(best[1] + sources.boot(), best[2])


def settle(session: Session, count: DatabaseClock, token: str) -> Instant:
    """Make the count and the store's clock agree; by how much the database's clock has jumped, where it has.

    A process that stood still (a virtual machine that was stopped) finds that others have counted further. Otherwise
    the database's clock was set, and whoever notices it first takes that back for all.
    """
    sent_at = sources.boot()
    ((at, shift),) = session.run(_READ)
    if not count.compare(at, shift, sent_at):
        return 0
    with session.transaction():
        session.run(_LOCK)
        sent_at = sources.boot()
        ((at, shift),) = session.run(_READ)
        jumped = count.compare(at, shift, sent_at)
        if not jumped:
            return 0
        ((furthest,),) = session.run(_RENEWED, token)
        if furthest is not None and furthest > count.now() + JUMP:
            _measure(session, count)
            return 0
        ((count.shift,),) = session.run(_SHIFT, -jumped)
    return jumped
