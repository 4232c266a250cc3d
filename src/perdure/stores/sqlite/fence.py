"""The fence of a SQLite store: what makes a commit of a former owner fail.

    claim       inserts the partition's row, or raises its epoch; the owner remembers the epoch
    take-over   deletes the row of the former owner, whose lock the successor holds
    commit      compares the epoch inside its transaction: another one, or no row, and nothing is written

The lock of a partition (`partition_locks.py`) says who may take over; the epoch is what each commit is checked against.
"""

from collections.abc import Iterable, Mapping

import apsw

EPOCH = "SELECT epoch FROM partitions WHERE id = ?"


def raise_epoch(connection: apsw.Connection, partition: int) -> int:
    """The partition is claimed; the epoch of its new owner."""
    row = "INSERT INTO partitions VALUES (?, 1) ON CONFLICT DO UPDATE SET epoch = epoch + 1 RETURNING epoch"
    epoch: int = connection.execute(row, (partition,)).get
    return epoch


def fence_off(connection: apsw.Connection, partition: int) -> None:
    """The partition is taken over: from here on no commit of its former owner succeeds."""
    connection.execute("DELETE FROM partitions WHERE id = ?", (partition,))


def fenced_partitions(connection: apsw.Connection, partitions: Iterable[int], epochs: Mapping[int, int]) -> list[int]:
    """Those that have another owner by now; `epochs` are the ones under which we claimed ours."""
    return [
        partition
        for partition in partitions
        if connection.execute(EPOCH, (partition,)).get != epochs.get(partition, -1)
    ]
