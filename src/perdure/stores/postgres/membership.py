"""Being one of the servers: a row with a lease, by which everybody knows that we live.

    none ──join──▶ registered ──leave──▶ none
                    └──our row removed by a successor──▶ lost ──rejoin, or whatever needs the row──▶ registered anew

The row is found by the token of this process. Whoever finds it gone registers anew before it counts or takes anything,
in the same transaction; it is *late* from then on, until `rejoin` has told what is ours.
"""

import os
import socket
from collections.abc import Sequence
from zlib import crc32

from perdure.kernel import inputs
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.tasks.crash_attribution import LossKind
from perdure.kernel.versions import RECORDS
from perdure.stores import clocks
from perdure.stores.commit_types import Message
from perdure.stores.postgres.database import NOW, Database, microseconds
from perdure.stores.postgres.fence import Fence, hold_fence
from perdure.stores.postgres.messages import send_all
from perdure.stores.postgres.server_lease import ServerLease, boot_time
from perdure.stores.postgres.session import Session
from perdure.stores.postgres.store_part import StorePart
from perdure.stores.postgres.wire import INT, INTS, TEXT, TEXTS, Statement

# Runs that this program cannot read, because a newer one has written to them, go to a server that can.

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
_MOVE_MESSAGES = Statement(
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


def transfer_runs(
    session: Session, fence: Fence, reads: int, owned: Sequence[int], runs: Sequence[RunId], now: Instant
) -> dict[RunId, int]:
    """Those that are not ours any more, and where they went. A run is moved as the message that starts it, if need be.

    Asked a second time, because nobody knows what became of the first, it says the same.
    """
    with session.transaction():
        targets = [id for (id,) in session.run(_THEIRS, reads)]
        if not targets or not hold_fence(session, fence):
            return {}
        runs = sorted(runs)  # in the order in which commits lock them
        homes = [targets[crc32(run.encode()) % len(targets)] for run in runs]
        moved = session.run(_MOVE_RUNS, runs, homes, owned)
        session.run(_MOVE_MESSAGES, runs, homes, owned)
        send_all(session, [(Message(RunId(run), now, _WAKE), home) for run, home in moved])
        moved_away = {run for (run,) in session.run(_NOT_HERE, runs, owned, owned)}
    return {run: home for run, home in zip(runs, homes, strict=True) if run in moved_away}


_REGISTER = Statement(
    "INSERT INTO servers (token, name, role, until, reads, started_at, renewed, machine)"
    " VALUES ({0}, {1}, {2}, {3} + {4}, {5}, {3}, {3}, {6}) RETURNING id, epoch",
    TEXT,
    TEXT,
    TEXT,
    INT,
    INT,
    INT,
    TEXT,
)
_REGISTERED = Statement("SELECT id, epoch FROM servers WHERE token = {} FOR KEY SHARE", TEXT)
_LOWEST = Statement("SELECT min(reads) FROM servers WHERE until >= {}", INT)
_SERVE = Statement("UPDATE servers SET role = {} WHERE token = {}", TEXT, TEXT)
_RAISE = Statement("UPDATE servers SET epoch = epoch + 1 WHERE id = {} AND epoch = {} RETURNING epoch", INT, INT)
_COME_BACK = Statement(
    "UPDATE servers SET epoch = epoch + 1, until = {0} + {1}, renewed = {0} WHERE token = {2} RETURNING id, epoch",
    INT,
    INT,
    TEXT,
)
_MACHINES = Statement("SELECT DISTINCT machine FROM servers WHERE machine <> '' AND renewed > {}", INT)
_LEAVE = Statement("DELETE FROM servers WHERE token = {}", TEXT)
_SEEN = Statement(
    "INSERT INTO clock (seen) VALUES ({}) ON CONFLICT (id) DO UPDATE SET seen = greatest(clock.seen, excluded.seen)",
    INT,
)
_END_OWN = Statement(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
    " AND usename = current_user AND application_name = {} AND pid <> pg_backend_pid()",
    TEXT,
)


class Membership(StorePart):
    """The verbs of coming and going, of a store that can read and run a transaction."""

    _database: Database
    reads = RECORDS  # the newest records that this program understands

    def __init__(self) -> None:
        super().__init__()
        self._lease: ServerLease | None = None
        self._epoch = 0
        self._role = ""
        self._machines: list[str] = []  # on which servers were seen when we took something over

    async def _join(self, role: str) -> ServerLease:
        if self._lease is None or (self._role != role and role == "serve"):
            await self._write(lambda session, again: self._enter(session, role))
            self._lease_of_us.notify_everyone()
        return self._lease_of_us

    @property
    def _lease_of_us(self) -> ServerLease:
        assert self._lease is not None
        return self._lease

    def _enter(self, session: Session, role: str) -> None:
        self._role = role
        if self._lease is not None:
            session.run(_SERVE, role, self._database.token)
            return
        until = boot_time() + self._database.settings.lease
        server, self._epoch = self._registered(session)
        self._lease = self._new_lease(session, server, until)

    def _new_lease(self, session: Session, server: int, until: float) -> ServerLease:
        """Of a server that is registered: whoever registers from now on finds its row, and tells it to look again."""
        ((lowest,),) = session.run(_LOWEST, self._database.clock.now())
        return ServerLease(self._database, server, until, self.reads if lowest is None else lowest)

    def _registered(self, session: Session) -> tuple[int, int]:
        """Number and epoch of our row, which is made where there is none. It may have been made unheard."""
        rows = session.run(_REGISTERED, self._database.token)
        if not rows:
            name = f"{socket.gethostname()}:{os.getpid()}"
            now, lease = self._database.clock.now(), microseconds(self._database.settings.lease)
            rows = session.run(
                _REGISTER, self._database.token, name, self._role, now, lease, self.reads, clocks.machine()
            )
        server, epoch = rows[0]
        return server, epoch

    def _present(self, session: Session) -> int:
        """The number of our row, inside a transaction that keeps it there."""
        server, _ = self._registered(session)
        if server != self._lease_of_us.server:
            self._lease_of_us.lose()
        return server

    def _reconnected(self, session: Session) -> None:
        """A new connection writes under a new epoch. What the lost one left open would hold that up."""
        if self._lease is not None:
            session.run(_END_OWN, f"{self._database.token} writer")
        if self._lease is not None and not self._lease.is_over:
            rows = session.run(_RAISE, self._lease.server, self._epoch)
            if rows:
                self._epoch = rows[0][0]
            else:
                self._lease.lose()

    def _leave(self, session: Session) -> None:
        """Give up everything at once, and be gone."""
        session.run(_LEAVE, self._database.token)
        session.run(_SEEN, self._database.clock.now())

    def _look_at_machines(self, session: Session) -> None:
        """Whoever lives has renewed its lease within half of it; whoever died with one that is over has not."""
        recent = self._database.clock.now() - microseconds(self._database.settings.lease) // 2
        self._machines = [machine for (machine,) in session.run(_MACHINES, recent)]

    def loss_on(self, machine: str) -> LossKind:
        boot, _, host = machine.partition(" ")
        machines = [name.partition(" ") for name in (*self._machines, clocks.machine()) if name]
        if not machine or any(seen_boot == boot for seen_boot, _, _ in machines):
            return LossKind.PROCESS
        return LossKind.STOPPED if any(seen_host == host for _, _, seen_host in machines) else LossKind.UNSEEN

    @property
    def is_late(self) -> bool:
        return self._lease is not None and self._lease.is_over

    @property
    def min_record_version(self) -> int:
        return self.reads if self._lease is None else min(self.reads, self._lease.min_record_version)

    def _come_back(self, session: Session) -> int:
        """Be registered, with a lease that counts from now; the number of our row."""
        until = boot_time() + self._database.settings.lease
        now, lease = self._database.clock.now(), microseconds(self._database.settings.lease)
        rows = session.run(_COME_BACK, now, lease, self._database.token)
        server: int
        server, self._epoch = rows[0] if rows else self._registered(session)
        if self._lease is None or self._lease.is_over or self._lease.server != server:
            if self._lease is not None:
                self._lease.end()
            self._lease = self._new_lease(session, server, until)
        return server
