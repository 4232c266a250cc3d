"""The clock of a store in a file: one offset per boot of the machine, drawn by the first who opens the file.

It is never drawn before the last recorded instant, and all processes of the machine count with it.
"""

from pathlib import Path
from typing import Any

import apsw
import msgspec

from perdure.kernel.values import Instant
from perdure.stores.clocks import Count, offset_of_wall, refuse_behind, sources

LOOKED_AT = 100  # rows of the log; commits of several processes are written in nearly the order of their instants

_turns = msgspec.msgpack.Decoder(list[tuple[int, Any]])


def set_count(count: Count, connection: apsw.Connection, path: Path, *, writes: bool) -> None:
    """Count as the store says. Who only reads keeps an offset of its own where nobody has drawn one since the boot."""
    last = last_recorded(connection)
    refuse_behind(str(path), sources.wall(), last)
    drawn = _drawn(connection)
    if drawn is None and writes:
        connection.execute("BEGIN IMMEDIATE")
        try:
            drawn = _drawn(connection)
            if drawn is None:
                drawn = _offset(last_recorded(connection))
                connection.execute("INSERT INTO clock VALUES (?, ?)", (sources.machine(), drawn))
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
    count.offset = _offset(last) if drawn is None else drawn


def _offset(last: Instant) -> Instant:
    return max(offset_of_wall(), last - sources.boot())


def _drawn(connection: apsw.Connection) -> Instant | None:
    offset: Instant | None = connection.execute("SELECT start FROM clock WHERE boot = ?", (sources.machine(),)).get
    return offset


def last_recorded(connection: apsw.Connection) -> Instant:
    (instants,) = connection.execute(
        "SELECT (SELECT max(created_at) FROM runs), (SELECT max(ended_at) FROM runs WHERE ended_at IS NOT NULL),"
        " (SELECT at FROM inbox ORDER BY position DESC LIMIT 1)"
    )
    found = [at for at in instants if at is not None]
    for (body,) in connection.execute("SELECT body FROM log ORDER BY position DESC LIMIT ?", (LOOKED_AT,)):
        try:
            found += [at for at, _ in _turns.decode(body)]
        except msgspec.DecodeError:
            continue  # what is damaged is found by who reads it
    return max(found, default=0)
