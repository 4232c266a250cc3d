"""An expression in the language of a run, evaluated against what a step of it could read at some moment.

Nothing is decided or stored. Which moment is meant, where nobody says so: now, or the last one at which the step had
its data.
"""

from typing import Any

import msgspec

from perdure.engine.client import Client
from perdure.engine.decision_threads import TakesTooLong, threads
from perdure.engine.runs import run_views
from perdure.kernel import inputs as i
from perdure.kernel.codec import Turns
from perdure.kernel.dialect import Dialect
from perdure.kernel.errors import Conflict, ExpressionFailed
from perdure.kernel.execution import Execution
from perdure.kernel.graphs.step_overview import flattened
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.kernel.turn import MissingValues, Turn
from perdure.stores.protocol import RunRow
from perdure.views.runs.history_events import event_at
from perdure.views.runs.run_overview import find_step, steps_of

LONGEST = 10_000  # characters of an expression


async def evaluate(
    client: Client, run: RunId, step: str, expression: str, moment: str | int | None = None
) -> dict[str, Any]:
    """`{"value": …}`, with the step that was meant. `moment` is an event: its number, its id, or a time."""
    at = None if moment is None else await event_at(client, run, str(moment))
    if len(expression) > LONGEST:
        raise ExpressionFailed(f"the expression is longer than {LONGEST} characters")
    row = await client.find(run)
    dialect = run_views.dialect_of(client.languages, row.language)
    if not dialect.evaluates:
        raise ExpressionFailed(f"a run in {row.language!r} has no expressions", hint="Ask about another run.")
    execution = await run_views.load(client.store, client.languages, row, at)
    path, _ = find_step(flattened(await steps_of(client, execution, at)), run, step)
    if not dialect.has_scope(execution, path[-1]):
        execution = await _last_with_scope(client, dialect, row, "/".join(path), at)
    mask = await run_views.mask_of(client.store, execution)
    turn = Turn(execution, i.Proceed(), execution.state.at, execution.state.at)
    while True:
        try:
            value = await threads.do(lambda: _computed(dialect, turn, path[-1], expression, mask.data))
            return {"run": run, "step": "/".join(path), "value": mask.data(value)}
        except TakesTooLong:
            raise ExpressionFailed("the expression takes too long") from None
        except MissingValues as needs:
            if needs.lookups:
                turn.answers.update(await client.answers(needs.lookups))
            texts = await client.store.values(run, needs.digests)
            turn.texts.update(texts)
            turn.absent.update(name for name in needs.digests if name not in texts)
            if turn.absent.intersection(needs.digests) and not needs.may_be_absent:
                raise ExpressionFailed("it reads a large value that is no longer stored") from None


def _computed(dialect: Dialect, turn: Turn, step: str, expression: str, hide: Any) -> Any:
    value = dialect.evaluate(turn, step, expression, hide)
    try:
        return jsontext.decode(jsontext.encode(value))
    except (jsontext.NotJson, msgspec.DecodeError) as error:
        raise ExpressionFailed(f"the value has no JSON form: {error}") from None


async def _last_with_scope(client: Client, dialect: Dialect, row: RunRow, step: str, at: int | None) -> Execution:
    """The run at the last moment at which the step could read anything; not after `at`, which is taken literally."""
    if at is not None:
        raise Conflict(f"step {step!r} is not open at event {at}", hint="Name an event between its begin and its end.")
    program = await run_views.program_of(client.store, dialect, row)
    turns = await run_views.turns(client.store, dialect, row.id)
    name = step.rpartition("/")[2]
    first = await run_views.begin_stored(client.store, row.id, dialect, turns, program)
    last = await run_views.told_aside(turns, lambda: _last_moment(first, turns, name))
    if not last:
        raise Conflict(f"step {step!r} has not begun", hint="Look at the run with `perdure show RUN`.")
    execution = await run_views.begin_stored(client.store, row.id, dialect, turns, program)
    await run_views.told_aside(turns, lambda: execution.fold(run_views.cut(turns, last)))
    return execution


def _last_moment(execution: Execution, turns: Turns, step: str) -> int:
    last = 0
    for at, events in turns:
        execution.state.at = at
        for event in events:
            execution.apply(event)
            if execution.dialect.has_scope(execution, step):
                last = execution.state.seq
    return last
