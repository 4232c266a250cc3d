"""Runs that this program cannot read, because a newer one has written to them, go to a server that can."""

from collections.abc import Sequence
from zlib import crc32

from perdure.kernel import inputs
from perdure.kernel.values import Instant, RunId
from perdure.stores.postgres.database import NOW
from perdure.stores.postgres.messages import send_all
from perdure.stores.postgres.session import Session
from perdure.stores.postgres.wire import INT, INTS, TEXTS, Statement
from perdure.stores.protocol import Message

_FENCE = Statement("SELECT 1 FROM servers WHERE id = {} AND epoch = {} FOR KEY SHARE", INT, INT)
_THEIRS = Statement(
    "SELECT p.id FROM partitions p JOIN servers s ON s.id = p.owner WHERE p.is_shared AND s.role = 'serve'"
    f" AND s.reads > {{}} AND s.until >= {NOW} ORDER BY p.id",
    INT,
)
_MOVE_RUNS = Statement(
    "UPDATE runs SET partition = n.home FROM unnest({}, {}) AS n (run, home)"
    " WHERE runs.id = n.run AND runs.partition = ANY({}) RETURNING runs.id, runs.partition",
    TEXTS,
    INTS,
    INTS,
)
_MOVE_LETTERS = Statement(
    "UPDATE inbox SET partition = n.home FROM unnest({}, {}) AS n (run, home)"
    " WHERE inbox.run = n.run AND inbox.partition = ANY({})",
    TEXTS,
    INTS,
    INTS,
)
_NOT_HERE = Statement(
    "SELECT n.run FROM unnest({}) AS n (run)"
    " WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = n.run AND runs.partition = ANY({}))"
    " AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.run = n.run AND inbox.partition = ANY({}))",
    TEXTS,
    INTS,
    INTS,
)
_WAKE = inputs.encode(inputs.Wake())


def entrust(
    session: Session, fence: tuple[int, int], reads: int, ours: Sequence[int], runs: Sequence[RunId], now: Instant
) -> dict[RunId, int]:
    """Those that are not ours any more, and where they went. A run is moved as the letter that starts it, if need be.

    Asked a second time, because nobody knows what became of the first, it says the same.
    """
    with session.transaction():
        theirs = [id for (id,) in session.run(_THEIRS, reads)]
        if not theirs or not session.run(_FENCE, *fence):
            return {}
        runs = sorted(runs)  # in the order in which commits lock them
        homes = [theirs[crc32(run.encode()) % len(theirs)] for run in runs]
        born = session.run(_MOVE_RUNS, runs, homes, ours)
        session.run(_MOVE_LETTERS, runs, homes, ours)
        send_all(session, [(Message(RunId(run), now, _WAKE), home) for run, home in born])
        gone = {run for (run,) in session.run(_NOT_HERE, runs, ours, ours)}
    return {run: home for run, home in zip(runs, homes, strict=True) if run in gone}
