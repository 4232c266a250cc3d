"""One task, one transaction: all changes of its statements are kept, or none.

The work is done in a separate thread, so that neither a slow query nor a large result delays the event loop. A stop is
requested repeatedly until the thread has ended; a thread that was asked to stop never commits. Databases that are
libraries also run in a subprocess: there the operating system limits what a statement uses, and one that does not stop
is killed.
"""

import asyncio
import base64
import binascii
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from perdure.kernel.json_values import jsontext
from perdure.providers.databases.statements import BadStatement, Bound, Grammar, SqlStatement, bind, split
from perdure.providers.external_texts import Script, read_text
from perdure.providers.failure import Exhausted, ProviderFailure
from perdure.providers.off_loop import run_in_thread
from perdure.providers.policy import bytes_of, policy_in_force
from perdure.providers.task_outcomes import RESULT_LIMIT

_ASKED_EVERY = 0.1  # seconds between two requests to stop the statement: one may fall between two statements
_GRACE = 4.0  # seconds; less than the worker waits, so that this module reports how the task ended

ROOM = 768 * 1024 * 1024
"""Bytes of memory for a result in transfer, and for what a library does not count."""


class SqlCommand(msgspec.Struct, forbid_unknown_fields=True):
    """One of `commands` with its own values."""

    command: str
    params: list[Any] | dict[str, Any] | None = None


class DatabaseTimeouts(msgspec.Struct, forbid_unknown_fields=True):
    """Seconds. `total`, or else `read`, bounds the whole task; `connect` how long a connection may take."""

    connect: float = 10.0
    read: float | None = None
    total: float | None = None

    @classmethod
    def of(cls, timeout: "DatabaseTimeouts | float | None") -> "DatabaseTimeouts":
        if not isinstance(timeout, DatabaseTimeouts):
            return cls(total=timeout)
        return cls(timeout.connect, timeout.read, timeout.read if timeout.total is None else timeout.total)


class StatementResult:
    """The result of one statement: rows under columns, or a number of changed rows."""

    __slots__ = ("changed", "columns", "rows")

    def __init__(self, columns: list[str] | None, rows: list[dict[str, Any]], changed: int = 0) -> None:
        self.columns = columns
        self.rows = rows
        self.changed = max(changed, 0)


class DatabaseSession(Protocol):
    """A connection to one kind of database. All methods but `interrupt` are called in one thread."""

    grammar: Grammar
    prefix: str

    def open(self) -> None: ...

    def begin(self, statements: list[SqlStatement]) -> None: ...

    def execute(self, text: str, values: list[Any]) -> StatementResult: ...

    def commit(self) -> None: ...

    def close(self) -> None:
        """Without a commit before it, everything is undone. Must not fail."""

    def interrupt(self) -> None:
        """Stop the statement that is running, if there is one. Called from another thread; may fail."""

    def explain(self, error: Exception) -> ProviderFailure | None:
        """The meaning of the database's own exception; None for any other."""


StatementTexts = str | list[str | SqlCommand]


@dataclass(frozen=True)
class Statements:
    """The statements of a task. `script` takes precedence over `…_b64`, and that over plain text."""

    command: str | None
    commands: StatementTexts | None
    query: str | None
    command_b64: str | None
    commands_b64: str | None
    query_b64: str | None
    script: Script | str | None
    params: list[Any] | dict[str, Any] | None
    each: bool = False  # the result has every statement's own, too: `command_0`, `command_1` …

    def statements(self, grammar: Grammar) -> list[Bound]:
        bound = self._bound(self._text(), grammar)
        if not bound:
            raise BadStatement("the text contains no statement")
        for statement, _, _ in bound:
            if statement.is_transaction_control:
                first = statement.words[0]
                raise BadStatement(f"{first}: the whole task is one transaction already; leave {first} out")
        return bound

    def _text(self) -> StatementTexts:
        if self.script is not None:
            return read_text(self.script)
        encoded = _one_of(command_b64=self.command_b64, commands_b64=self.commands_b64, query_b64=self.query_b64)
        if encoded is not None:
            try:
                return base64.b64decode(encoded, validate=True).decode()
            except (binascii.Error, UnicodeDecodeError) as problem:
                raise BadStatement(f"the base64 text cannot be read: {problem}") from None
        plain: StatementTexts | None = _one_of(command=self.command, commands=self.commands, query=self.query)
        if plain is None:
            raise BadStatement("there is nothing to do: give command, commands, query or script")
        return plain

    def _bound(self, plain: StatementTexts, grammar: Grammar) -> list[Bound]:
        """Values of the task are shared by all its statements; a command may have its own."""
        items = [plain] if isinstance(plain, str) else plain
        shared = [statement for item in items if isinstance(item, str) for statement in split(item, grammar)]
        of_all = iter(bind(shared, self.params, grammar))
        bound: list[Bound] = []
        for item in items:
            if isinstance(item, str):
                bound += [next(of_all) for _ in split(item, grammar)]
            else:
                bound += bind(split(item.command, grammar), item.params, grammar)
        return bound


def _one_of(**choices: Any) -> Any:
    """The one that is set; of several names for one thing only one may be used."""
    present = {name: value for name, value in choices.items() if value is not None}
    if len(present) > 1:
        raise BadStatement(f"give one of {' and '.join(present)}, not both")
    return next(iter(present.values()), None)


def subprocess_memory(memory: str) -> int:
    """Bytes that the subprocess of a database library may use; the library itself may use `memory` of them."""
    return bytes_of(memory) + ROOM


def limited(total: float | None) -> float:
    """The time limit of a whole task, bounded by the operator's policy."""
    most = policy_in_force().database_seconds
    return most if total is None else min(total, most)


async def run_transaction(session: DatabaseSession, statements: Statements, total: float | None) -> msgspec.Raw:
    """The task's result as JSON text; `ProviderFailure` with the session's prefix when it has none."""
    transaction = _Transaction(session, statements)
    try:
        await asyncio.wait([transaction.ended], timeout=total)
        if not transaction.ended.done():
            await transaction.stop()
            if not transaction.ended.done() or isinstance(transaction.ended.exception(), _Stopped):
                facts = {"timeout": total}
                kind = ProviderFailure if transaction.ended.done() else Exhausted
                raise kind(f"{session.prefix}.Timeout", f"not finished after {total} s", True, facts)
        return transaction.ended.result()
    except asyncio.CancelledError:
        await transaction.stop()
        raise


class _Stopped(Exception):
    """The task was asked to stop, and its transaction was undone."""


class _Transaction:
    def __init__(self, session: DatabaseSession, work: Statements) -> None:
        self.session = session
        self.work = work
        self.is_stopped = False
        self.ended = run_in_thread(self._transact, "perdure-database")

    async def stop(self) -> None:
        """Ask until the thread has ended, up to a limit: it may hang in a connection that does not respond."""
        self.is_stopped = True
        loop = asyncio.get_running_loop()
        until = loop.time() + _GRACE
        while not self.ended.done() and loop.time() < until:
            run_in_thread(self.session.interrupt, "perdure-interrupt")  # may fail, for there may be no connection yet
            await asyncio.wait([self.ended], timeout=_ASKED_EVERY)

    def _transact(self) -> msgspec.Raw:
        session = self.session
        place = {}
        try:
            statements = self.work.statements(session.grammar)
            session.open()
            self._check_stopped()
            session.begin([statement for statement, _, _ in statements])
            answers: list[StatementResult] = []
            for number, (_, text, values) in enumerate(statements, 1):
                place = {"statement": number, "statements": len(statements)}
                self._check_stopped()
                answers.append(session.execute(text, values))
            place = {}
            result = self._encoded(_result(answers) | (_results(answers) if self.work.each else {}))
            self._check_stopped()
            session.commit()
            return result
        except BadStatement as problem:
            raise ProviderFailure(f"{session.prefix}.BadStatement", str(problem), retryable=False) from None
        except (ProviderFailure, _Stopped):
            raise
        except MemoryError:
            message = "the statements or their result need more memory than they may have; ask for less at a time"
            raise Exhausted(f"{session.prefix}.TooLarge", message, retryable=False, details=place or None) from None
        except Exception as error:
            self._check_stopped()
            failure = session.explain(error)
            if failure is None:
                raise
            failure.details = {**place, **(failure.details or {})} or None
            raise failure from None
        finally:
            session.close()

    def _encoded(self, result: dict[str, Any]) -> msgspec.Raw:
        """The result as text: encoded here, where it delays nothing, and checked while everything can be undone."""
        text = jsontext.encode_finite(result)  # values are plain already
        if len(text) > RESULT_LIMIT:
            message = f"the result has {len(text)} bytes, {RESULT_LIMIT} are allowed: ask for less at a time"
            facts = {"size": len(text), "limit": RESULT_LIMIT}
            raise ProviderFailure(f"{self.session.prefix}.TooLarge", message, False, facts)
        return msgspec.Raw(text)

    def _check_stopped(self) -> None:
        if self.is_stopped:
            raise _Stopped


def _results(answers: list[StatementResult]) -> dict[str, Any]:
    """The results of all statements, as NoETL names them."""
    return {f"command_{index}": {"status": "success", **_result([answer])} for index, answer in enumerate(answers)}


def _result(answers: list[StatementResult]) -> dict[str, Any]:
    """Of several statements the last one with rows counts; if there is none, all changed rows are counted."""
    for answer in reversed(answers):
        if answer.columns is not None:
            return {"rows": answer.rows, "row_count": len(answer.rows), "columns": answer.columns}
    return {"rows": [], "row_count": sum(answer.changed for answer in answers), "columns": []}
