"""A session whose statements are executed by plain psycopg cursors, for comparison with our own layer over libpq.

It is chosen with `PERDURE_POSTGRES_PLAIN=1`: whoever suspects a fault in `session.py` or `wire.py` runs the same work
again without them. It costs time: packing is psycopg's, and every commit is waited for where it is made, on the event
loop too (docs/decisions/0022-the-postgresql-wire-layer.md).
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from perdure.stores.postgres.session import ConnectionLost, Session, Step
from perdure.stores.postgres.wire import Statement

Rows = list[tuple[Any, ...]]


class PlainSession(Session):
    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        super().__init__(connection)
        self._unsent: Step | None = None  # `send` keeps it, `receive_rows` executes it
        self._channels: list[str] = []
        connection.add_notify_handler(lambda notification: self._channels.append(notification.channel))

    def run(self, statement: Statement, *values: Any) -> Rows:
        with self._deadline(self.until):
            return _rows(self._execute(statement, values))

    def run_all(self, steps: Sequence[Step]) -> list[Rows]:
        with self._deadline(self.until):
            with self._connection.pipeline():
                cursors = [self._execute(statement, values) for statement, values in steps]
            return [_rows(cursor) for cursor in cursors]

    def send(self, statement: Statement, *values: Any) -> None:
        self._unsent = (statement, values)

    def is_one_trip(self, statement: Statement) -> bool:
        return True

    @property
    def is_sent(self) -> bool:
        return True

    def is_answered(self, until: float | None = None) -> bool:
        return True

    def receive_rows(self, until: float | None = None) -> Rows:
        assert self._unsent is not None, "nothing was sent"
        (statement, values), self._unsent = self._unsent, None
        with self._deadline(self.until if until is None else until):
            return _rows(self._execute(statement, values))

    def execute(self, script: str) -> list[tuple[Any, ...]]:
        with self._deadline(self.until):
            cursor = self._connection.execute(script.encode())
            while cursor.nextset():
                pass
        result = cursor.pgresult
        assert result is not None
        return [
            tuple(
                None if (value := result.get_value(row, column)) is None else value.decode()
                for column in range(result.nfields)
            )
            for row in range(result.ntuples)
        ]

    def hints(self) -> list[str]:
        channels = [*self._channels, *super().notified_channels()]
        self._channels.clear()
        return channels

    def _execute(self, statement: Statement, values: Sequence[Any]) -> "psycopg.RawCursor[Any]":
        cursor = psycopg.RawCursor(self._connection)
        return cursor.execute(statement.sql, statement.adapt(values), binary=True)

    @contextmanager
    def _deadline(self, until: float | None) -> Iterator[None]:
        """Interrupt the connection at that time; name a lost connection as our own layer does."""
        self.round_trips += 1
        timer = None if until is None else threading.Timer(max(0.0, until - time.monotonic()), self.interrupt)
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            yield
        except psycopg.OperationalError as error:
            if self.is_alive:
                raise
            raise ConnectionLost(str(error)) from None
        finally:
            if timer is not None:
                timer.cancel()


def _rows(cursor: "psycopg.RawCursor[Any]") -> Rows:
    return cursor.fetchall() if cursor.description else []
