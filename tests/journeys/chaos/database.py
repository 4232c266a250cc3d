"""A PostgreSQL server that may be restarted, and a way to it that may be cut."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from perdure.kernel.json_values.values import Instant
from perdure.stores.clocks import sources
from tests import postgres
from tests.journeys.chaos.proxy import Proxy

PATIENCE = 60.0


class ChaosDatabase:
    def __init__(self, server: postgres.OwnServer, proxy: Proxy) -> None:
        self._server = server
        self.proxy = proxy
        self.hours_ahead = 0  # of its clock

    @property
    def address(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._server.port}/postgres"

    @property
    def address_by_proxy(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.proxy.port}/postgres"

    def ask(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Answered sooner or later, also while the server comes up again."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                with psycopg.connect(self.address, autocommit=True, application_name="chaos") as connection:
                    done = connection.execute(statement, values or None)
                    return list(done) if done.description else []
            except psycopg.OperationalError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def restart(self, mode: str) -> None:
        self._server.restart(mode)

    def set_clock(self, hours: int) -> None:
        """Nobody may set the clock of the machine: the function by which the store reads the wall is replaced."""
        self.hours_ahead = hours
        self.ask(
            "CREATE OR REPLACE FUNCTION perdure.wall() RETURNS bigint LANGUAGE sql VOLATILE AS"
            f" $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + {hours * 3_600_000_000} $$"
        )

    def clock(self) -> Callable[[], Instant]:
        """The store's clock, as the quickest of a few answers tells it."""
        answers = []
        for _ in range(5):
            sent = sources.boot()
            ((at,),) = self.ask("SELECT perdure.instant()")
            received = sources.boot()
            answers.append((received - sent, at - (sent + received) // 2))
        _, offset = min(answers)
        return lambda: sources.boot() + offset

    def cut_all(self) -> None:
        self.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND application_name <> 'chaos'"
        )

    def taken_over(self, process: int, timeout: float) -> float:
        """Seconds until this process, which is dead, owns nothing any more and nothing is without an owner."""
        begun = time.monotonic()
        while time.monotonic() - begun < timeout:
            ((left,),) = self.ask(
                "SELECT count(*) FROM perdure.partitions p LEFT JOIN perdure.servers s ON s.id = p.owner"
                " WHERE p.is_shared AND (s.id IS NULL OR s.name LIKE %s)",
                f"%:{process}",
            )
            if left == 0:
                return time.monotonic() - begun
            time.sleep(0.05)
        raise AssertionError(f"{left} partitions of process {process} were not taken over within {timeout:.0f} s")

    def owned_by(self, process: int, timeout: float) -> None:
        """Until this process owns everything that is shared, and its lease goes on."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            ((left,),) = self.ask(
                "SELECT count(*) FROM perdure.partitions p LEFT JOIN perdure.servers s ON s.id = p.owner"
                " WHERE p.is_shared AND (s.id IS NULL OR s.name NOT LIKE %s OR s.until < perdure.instant())",
                f"%:{process}",
            )
            if left == 0:
                return
            time.sleep(0.05)
        raise AssertionError(f"process {process} is alone, and {left} partitions are not its own after {timeout:.0f} s")

    def joined_by(self, process: int, timeout: float) -> None:
        """Until this process is among those who serve."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if self.ask("SELECT 1 FROM perdure.servers WHERE name LIKE %s", f"%:{process}"):
                return
            time.sleep(0.05)
        raise AssertionError(f"process {process} did not join the others within {timeout:.0f} s")

    def left_by(self, process: int, timeout: float) -> None:
        """Until this process, which may have left while there was no database, is not among the servers any more."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if not self.ask("SELECT 1 FROM perdure.servers WHERE name LIKE %s", f"%:{process}"):
                return
            time.sleep(0.1)
        raise AssertionError(f"what process {process} left was not taken over within {timeout:.0f} s")

    def served_by(self, engines: int, timeout: float) -> None:
        """Until so many engines serve, and every partition has an owner."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            try:
                ((serving, free),) = self.ask(
                    "SELECT (SELECT count(*) FROM perdure.servers WHERE role = 'serve'),"
                    " (SELECT count(*) FROM perdure.partitions WHERE is_shared AND owner IS NULL)"
                )
            except psycopg.errors.UndefinedTable:
                serving = free = 0
            if serving == engines and free == 0:
                return
            time.sleep(0.1)
        raise AssertionError(f"{engines} engines should serve; {serving} do, {free} partitions have no owner")

    def leaks(self) -> list[str]:
        """What is still held when everybody has left."""
        wrong = []
        for what, statement in _HELD.items():
            ((count,),) = self.ask(statement)
            if count:
                wrong.append(f"{count} {what} are left")
        return wrong


_HELD = {
    "rows of servers": "SELECT count(*) FROM perdure.servers",
    "partitions with an owner": "SELECT count(*) FROM perdure.partitions WHERE owner IS NOT NULL",
    "private partitions": "SELECT count(*) FROM perdure.partitions WHERE NOT is_shared",
    "permits": "SELECT count(*) FROM perdure.permits",
    "leased tasks": "SELECT count(*) FROM perdure.tasks WHERE state <> 'answered'",
    "messages": "SELECT count(*) FROM perdure.inbox",
    "runs with work": "SELECT count(*) FROM perdure.runs WHERE has_work OR due IS NOT NULL OR ended_at IS NULL",
    "advisory locks": "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
    "transactions": "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'",
    "prepared transactions": "SELECT count(*) FROM pg_prepared_xacts",
}


@contextmanager
def chaos_database(version: int) -> Iterator[ChaosDatabase]:
    with postgres.own_server(version) as server, Proxy(server.port) as proxy:
        yield ChaosDatabase(server, proxy)
