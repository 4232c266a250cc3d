"""Where a run's past can be taken over by another run: at the end of a turn, while the run was open.

Inside a turn something was recorded and not reacted to yet; nothing would ever move a run that begins there. So a fork
from an event has all of its turn: the input, and everything that was decided from it.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.engine.decision_threads import WORK_OF_A_TURN, done_aside
from perdure.engine.random_ids import new_run_id
from perdure.engine.runs import run_views
from perdure.kernel import inputs as i
from perdure.kernel.codec import Turns, encode_turns
from perdure.kernel.dialect import Dialect
from perdure.kernel.errors import Conflict, InvalidDocument, PerdureError, UnfitInput
from perdure.kernel.execution import Execution
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId, digest
from perdure.stores.commit_types import NewRun
from perdure.stores.protocol import RunRow

if TYPE_CHECKING:
    from perdure.engine.client import Client
    from perdure.engine.runs.document_start import StartRequest


MEANWHILE = 5.0  # seconds that the same request gets to be on disk
FORKED_FROM = "perdure.dev/forked-from"
"""The label of a fork: the run whose past it has. The forks of a run are found by it."""


class Point(msgspec.Struct, frozen=True):
    """The last event of a turn."""

    number: int  # as the history counts
    recorded: int  # as the kernel does
    is_open: bool  # False: the run had ended


class RunPast:
    """The turns of a run, and the points of it where a fork can begin."""

    def __init__(self, run: RunId, execution: Execution, turns: Turns) -> None:
        """`execution`: before its first event."""
        self._run = run
        self._turns = turns
        self._numbers = list(_numbers(run, execution.dialect, turns))
        self.points = list(self._points(execution))

    def _points(self, execution: Execution) -> Iterator[Point]:
        """What a turn recorded behind the last event that is told of it belongs to that event."""
        ends: list[int] = []
        is_open: list[bool] = []
        for turn in self._turns:
            execution.fold([turn])
            ends.append(execution.state.seq)
            is_open.append(not execution.state.status.is_final)
        for number, recorded in enumerate(self._numbers, start=1):
            turn_number = bisect_left(ends, recorded)
            is_last = number == len(self._numbers) or self._numbers[number] > ends[turn_number]
            if is_last:
                yield Point(number, ends[turn_number], is_open[turn_number])

    def until(self, at: int | None) -> Turns:
        """The past up to the end of the turn of event `at` of the history, or all of it; refused where it had ended."""
        if at is not None and not 0 < at <= len(self._numbers):
            run_views.no_event(at, len(self._numbers))
        number = len(self._numbers) if at is None else at
        point = next(candidate for candidate in self.points if candidate.number >= number)
        if point.is_open:
            return run_views.cut(self._turns, point.recorded)
        reason = f"run {self._run} had ended at event {point.number}; there is nothing to continue"
        nearest = max(
            (fork_point.number for fork_point in self.points if fork_point.is_open and fork_point.number < number),
            default=0,
        )
        if not nearest:
            raise Conflict(reason, hint=f"It ended with its first turn; see `perdure history {self._run}`.")
        raise Conflict(
            f"{reason}; the nearest event that can be forked from is {nearest}",
            hint=f"perdure fork {self._run} --at {nearest}",
            nearest=nearest,
        )


def _numbers(run: RunId, dialect: Dialect, turns: Turns) -> Iterator[int]:
    """For each event of the history, how many were recorded by then."""
    if dialect.has_own_history:
        return (recorded for recorded, _ in run_views.tell(dialect, run, turns))
    return iter(range(1, sum(len(events) for _, events in turns) + 1))


async def fork(
    client: "Client",
    run: RunId,
    at: int | None,
    at_failure: "ForkChanges | None" = None,
    request: "StartRequest | None" = None,
) -> RunId:
    """The id of a new run with the past of this one up to an event; see `Client.fork`.

    Under one request there is one fork, also if it is repeated after a crash: the key is the id of the fork.
    """
    runtime = client.running()
    if request is not None and await _is_forked(client, request):
        return RunId(request.key)
    if at_failure is not None:
        return await _fork_at_failure(client, run, at_failure, request)
    row = await client.find(run)
    dialect = run_views.dialect_of(client.languages, row.language)
    program = await run_views.program_of(client.store, dialect, row)
    turns = await run_views.turns(client.store, dialect, run)
    from perdure.engine.runs.run_documents import begin_folding, moves_in, read_former

    former = await read_former(client.store, run, moves_in(turns))
    execution = begin_folding(_new_id(client, request), dialect, former, program)

    def live() -> bytes:
        past_turns = RunPast(run, begin_folding(run, dialect, former, program), turns).until(at)
        execution.fold(past_turns)
        return encode_turns(past_turns)

    past_turns = await done_aside(len(turns) * WORK_OF_A_TURN, live)
    seq = execution.state.seq
    pinned, document = row.program, None
    if execution.later_programs:  # it begins before the run was moved, with the document of that time
        before = former[-len(execution.later_programs)]
        pinned, document, execution.later_programs = before.digest, before.text, []
    new = _new_run(client, row, pinned, request)
    past = [(seq, past_turns)]
    answer = await runtime.create_forked(execution, new, past, i.Fork(run, seq), document=document, act=client.act)
    if isinstance(answer, i.Refused) and not (request and await _is_forked_meanwhile(client, request)):
        raise PerdureError(answer.reason)
    return execution.id


def _new_id(client: "Client", request: "StartRequest | None") -> RunId:
    return new_run_id(client.clock.now()) if request is None else RunId(request.key)


async def _is_forked(client: "Client", request: "StartRequest") -> bool:
    from perdure.engine.runs.document_start import has_started

    return await has_started(client, RunId(request.key), request.digest)


async def _is_forked_meanwhile(client: "Client", request: "StartRequest") -> bool:
    """Whether the same request, sent at the same time, has made the fork; it may not be on disk yet."""
    until = monotonic() + MEANWHILE
    while not await _is_forked(client, request):
        if monotonic() >= until:
            return False
        await asyncio.sleep(0.02)
    return True


def _new_run(client: "Client", row: RunRow, program: bytes, request: "StartRequest | None") -> NewRun:
    """A name is one run's: the fork is known by its id, and says whose past it has."""
    label = client.languages[row.language].name_label
    labels = {name: value for name, value in row.labels.items() if name != label} | {FORKED_FROM: row.id}
    now = client.clock.now()
    key = row.key if request is None else request.digest
    return NewRun(row.language, row.name, program, None, labels, key, now, namespace=row.namespace)


# A fork that goes on where the run failed.


class ForkChanges(msgspec.Struct, frozen=True):
    """For a fork that goes on where a run that has ended failed, or was stopped: what is different in it.

    It is refused (`Conflict`) if a place where it would go on is not in a newer document.
    """

    document: bytes | None = None
    origin: str = "document"
    input: Any = msgspec.UNSET

    @property
    def has_input(self) -> bool:
        return self.input is not msgspec.UNSET


async def _fork_at_failure(client: "Client", run: RunId, changes: ForkChanges, request: "StartRequest | None") -> RunId:
    """The id of a new run that goes on where this one failed; see `Client.fork`."""
    runtime = client.running()
    row = await client.find(run)
    dialect = run_views.dialect_of(client.languages, row.language)
    if not dialect.reopens_at_failure:
        hint = f"See `perdure redrive {run} --from STEP`, or `perdure fork {run} --at MOMENT`."
        raise Conflict(f"a run of language {row.language!r} cannot continue at the step that failed", hint=hint)
    if not row.status.is_final:
        raise Conflict(f"run {run} has not ended", hint=f"perdure fork {run}")
    program, document = await _program(client, dialect, row, changes)
    turns = await run_views.turns(client.store, dialect, run)
    from perdure.engine.runs.run_documents import begin_folding, moves_in, read_former

    former = await read_former(client.store, run, moves_in(turns))
    execution = begin_folding(_new_id(client, request), dialect, former, program)
    await done_aside(len(turns) * WORK_OF_A_TURN, lambda: execution.fold(turns))
    reopen = i.Reopen()
    if reason := dialect.refusal(execution, reopen):
        raise Conflict(f"run {run} cannot be forked at its failure: {reason}")
    if missing := dialect.missing_places(execution):
        raise Conflict(
            f"{changes.origin} does not have {', '.join(missing)}, where run {run} would go on",
            hint="Keep the names on the way to the step that failed, or start a new run.",
        )
    if changes.has_input and (reason := dialect.why_unfit(program, changes.input)):
        raise UnfitInput(f"{reason}; nothing was started")
    seq = execution.state.seq
    pinned = row.program if document is None else digest(document)
    new = _new_run(client, row, pinned, request)
    input = jsontext.encode(changes.input) if changes.has_input else None
    is_newer = document is not None
    fork = i.Fork(run, seq, pinned if is_newer else b"", input, from_api=is_newer and client.from_api)
    past_turns = [(seq, encode_turns(turns))]
    answer = await runtime.create_forked(
        execution, new, past_turns, fork, reopen=reopen, document=document, act=client.act
    )
    if isinstance(answer, i.Refused) and not (request and await _is_forked_meanwhile(client, request)):
        raise PerdureError(answer.reason)
    return execution.id


async def _program(client: "Client", dialect: Dialect, row: RunRow, changes: ForkChanges) -> tuple[Any, bytes | None]:
    """The program of the fork, and its text if that is a newer one."""
    if changes.document is None:
        return await run_views.program_of(client.store, dialect, row), None
    language, validated = await client.check(changes.document, changes.origin, namespace=row.namespace)
    if language is not dialect:
        raise Conflict(f"{changes.origin} is a document of language {language.name!r}, the run is a {row.language}")
    if validated.program is None or validated.has_errors:
        problems = "\n".join(problem.describe(changes.origin) for problem in validated.problems)
        raise InvalidDocument(problems or f"{changes.origin}: there is nothing in it that can be run")
    return validated.program, validated.pinned
