"""One connection: statements go out and answers come back, without any interpretation of what they mean.

It speaks to libpq directly: psycopg opens the connection, and its cursors would cost more than the database does.
"""

import os
import select
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import pq
from psycopg.errors import error_from_result
from psycopg.pq.abc import PGresult

from perdure.stores.postgres.wire import Statement, rows_of

MOST_PREPARED = 300

Step = tuple[Statement, Sequence[Any]]
"""A statement and its values."""

BEGIN, COMMIT = Statement("BEGIN"), Statement("COMMIT")


class ConnectionLost(Exception):
    """Nobody knows what became of the last statement."""


class Session:
    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._pgconn.nonblocking = 1
        self._poll = select.poll()
        self._poll.register(self._pgconn.socket, select.POLLIN)
        self._statement_names: dict[bytes, bytes] = {}  # statement → the name it is prepared under; empty: met once
        self._prepared = 0
        self.round_trips = 0
        self.until: float | None = None  # monotonic; an answer that comes later counts as none
        self.pid = self._pgconn.backend_pid

    @property
    def connection(self) -> "psycopg.Connection[Any]":
        """For what is read or written whole, where a cursor's cost does not count."""
        return self._connection

    @property
    def is_alive(self) -> bool:
        return self._pgconn.status == pq.ConnStatus.OK

    def is_there(self) -> bool:
        """Whether it can be used. A server that sends something unasked is closing the connection."""
        return self.is_alive and not self._poll.poll(0)

    @property
    def socket(self) -> int:
        return self._pgconn.socket

    @property
    def server_version(self) -> int:
        return self._pgconn.server_version

    def close(self) -> None:
        self._connection.close()

    def interrupt(self) -> None:
        """From another thread: whoever waits here for an answer finds the connection lost."""
        with suppress(OSError), socket.socket(fileno=os.dup(self._pgconn.socket)) as end:
            end.shutdown(socket.SHUT_RDWR)

    def run(self, statement: Statement, *values: Any) -> list[tuple[Any, ...]]:
        self.send(statement, *values)
        return self.receive_rows()

    def send(self, statement: Statement, *values: Any) -> None:
        """Begin a statement; `receive` waits for its end. What is met a second time is prepared."""
        packed = statement.pack(values)
        name = self._statement_names.get(statement.sql)
        if name is None:
            self._statement_names[statement.sql] = b""
            with _sending():
                self._pgconn.send_query_params(statement.sql, packed, None, statement.formats, 1)
            return
        if not name:
            name = self._prepare(statement)
        try:
            self._pgconn.send_query_prepared(name, packed, statement.formats, 1)
        except psycopg.OperationalError as error:
            raise ConnectionLost(str(error)) from None

    def run_all(self, steps: Sequence[Step]) -> list[list[tuple[Any, ...]]]:
        """Several statements in one trip; each sees what those before it did, and after one that fails none is done.

        A transaction is begun and ended by statements of its own: it may need several trips.
        """
        if len(self._statement_names) + len(steps) > MOST_PREPARED:
            self._forget_prepared()
        self._pgconn.enter_pipeline_mode()
        counts: list[bool] = []  # by answer: whether anybody waits for it
        with _sending():
            for statement, values in steps:
                name = self._statement_names.get(statement.sql)
                if name == b"":
                    name = self._next_name()
                    self._pgconn.send_prepare(name, statement.sql)
                    self._statement_names[statement.sql] = name
                    counts.append(False)
                if name is None:
                    self._statement_names[statement.sql] = b""
                    self._pgconn.send_query_params(statement.sql, statement.pack(values), None, statement.formats, 1)
                else:
                    self._pgconn.send_query_prepared(name, statement.pack(values), statement.formats, 1)
                counts.append(True)
            self._pgconn.pipeline_sync()
        answers = self._receive_all()
        self._pgconn.exit_pipeline_mode()
        for answer in answers:
            if answer.status == pq.ExecStatus.FATAL_ERROR:
                for statement, _ in steps:  # what was to be prepared may not be
                    self._statement_names[statement.sql] = b""
                raise error_from_result(answer)
        return [rows_of(answer) for answer, is_asked in zip(answers, counts, strict=True) if is_asked]

    def _receive_all(self) -> list[PGresult]:
        """The answers up to the end of the trip."""
        self.round_trips += 1
        answers: list[PGresult] = []
        try:
            while True:
                if not self.is_answered(self.until):
                    self.close()
                    raise ConnectionLost("the database did not answer in time")
                answer = self._pgconn.get_result()
                if not self.is_alive:
                    raise ConnectionLost(self._error_text())
                if answer is None:
                    continue  # the end of one statement
                if answer.status == pq.ExecStatus.PIPELINE_SYNC:
                    return answers
                answers.append(answer)
        except psycopg.OperationalError as error:
            raise ConnectionLost(str(error)) from None

    def is_one_trip(self, statement: Statement) -> bool:
        """Whether `send` waits for nothing: a statement that is met the second time is prepared first."""
        return self._statement_names.get(statement.sql) != b""

    def _prepare(self, statement: Statement) -> bytes:
        if len(self._statement_names) > MOST_PREPARED:
            self._forget_prepared()
        name = self._next_name()
        with _sending():
            self._pgconn.send_prepare(name, statement.sql)
        self.receive()
        self._statement_names[statement.sql] = name
        return name

    def _next_name(self) -> bytes:
        self._prepared += 1
        return b"p%d" % self._prepared

    def _forget_prepared(self) -> None:
        self.execute("DEALLOCATE ALL")
        self._statement_names.clear()

    def execute(self, script: str) -> list[tuple[Any, ...]]:
        """Statements without values; the rows of the last one, as text."""
        with _sending():
            self._pgconn.send_query(script.encode())
        result = self.receive()
        return [
            tuple(
                None if (value := result.get_value(row, column)) is None else value.decode()
                for column in range(result.nfields)
            )
            for row in range(result.ntuples)
        ]

    def receive_rows(self, until: float | None = None) -> list[tuple[Any, ...]]:
        """The rows that the statement sent last returns."""
        return rows_of(self.receive(until))

    def receive(self, until: float | None = None) -> PGresult:
        """The end of what was sent. Past `until` (monotonic) the connection counts as lost."""
        self.round_trips += 1
        last: PGresult | None = None
        try:
            while True:
                # Before each result of a script: libpq waits without letting other threads of this process run.
                if not self.is_answered(self.until if until is None else until):
                    self.close()
                    raise ConnectionLost("the database did not answer in time")
                result = self._pgconn.get_result()
                if result is None:
                    break
                if last is None or last.status != pq.ExecStatus.FATAL_ERROR:
                    last = result
        except psycopg.OperationalError as error:
            raise ConnectionLost(str(error)) from None
        if last is None or not self.is_alive:
            raise ConnectionLost(self._error_text())
        if last.status == pq.ExecStatus.FATAL_ERROR:
            raise error_from_result(last)
        return last

    @property
    def is_sent(self) -> bool:
        """Whether all of the statement is on its way."""
        try:
            return not self._pgconn.flush()
        except psycopg.OperationalError:
            return True

    def is_answered(self, until: float | None = None) -> bool:
        """Wait until what was sent has its whole answer, or until then; also true when the connection is gone."""
        pgconn = self._pgconn
        try:
            while pgconn.flush():
                writing = select.poll()
                writing.register(pgconn.socket, select.POLLIN | select.POLLOUT)
                if not writing.poll(_milliseconds(until)):
                    return False
                pgconn.consume_input()
            while True:
                # Every result but the end has been read when the next one would not block.
                if not pgconn.is_busy():
                    return True
                if not self._poll.poll(_milliseconds(until)):
                    return False
                pgconn.consume_input()
        except psycopg.OperationalError:
            return True

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One transaction; inside of another one it is a part of that."""
        if self._pgconn.transaction_status == pq.TransactionStatus.INTRANS:
            yield
            return
        self.execute("BEGIN")
        try:
            yield
        except BaseException:
            self.roll_back()
            raise
        self.execute("COMMIT")

    def roll_back(self) -> None:
        if self.is_alive and self._pgconn.transaction_status != pq.TransactionStatus.IDLE:
            try:
                self.execute("ROLLBACK")
            except (ConnectionLost, psycopg.Error):
                self.close()

    def notified_channels(self) -> list[str]:
        """Channels on which something was heard."""
        try:
            self._pgconn.consume_input()
        except psycopg.OperationalError as error:
            raise ConnectionLost(str(error)) from None
        channels = []
        while (notice := self._pgconn.notifies()) is not None:
            channels.append(notice.relname.decode())
        return channels

    def _error_text(self) -> str:
        text = self._pgconn.get_error_message().strip() if self._pgconn.status != pq.ConnStatus.OK else ""
        return text or "the connection was closed"


@contextmanager
def _sending() -> Iterator[None]:
    try:
        yield
    except psycopg.OperationalError as error:
        raise ConnectionLost(str(error)) from None


def _milliseconds(until: float | None) -> float | None:
    return None if until is None else max(0.0, (until - time.monotonic()) * 1_000)
