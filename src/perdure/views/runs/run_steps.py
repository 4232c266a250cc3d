"""The steps of a run as JSON: each at a glance, and one with its inputs, outputs, attempts, effects and log lines."""

from typing import Any

from perdure.engine.client import Client
from perdure.engine.runs import run_views
from perdure.engine.runs.effects import effects
from perdure.kernel.execution import Execution
from perdure.kernel.graphs.step_overview import StepFailure, StepOverview, flattened
from perdure.kernel.json_values.values import RunId
from perdure.views.errors import BadRequest
from perdure.views.runs.log_reader import TaskLogReader
from perdure.views.runs.progress_events import step_of_path
from perdure.views.runs.run_overview import find_step, steps_of
from perdure.views.times import iso

MOST_EXPRESSIONS = 200  # of one step
LOG_LINES = 200  # the latest ones of a step; `/logs` has all


async def list_steps(client: Client, run: RunId, at: int | None = None) -> list[dict[str, Any]]:
    """All steps in the order of the document, those of blocks behind their block."""
    execution = await run_views.load(client.store, client.languages, await client.find(run), at)
    steps = flattened(await steps_of(client, execution, at))
    mask = await run_views.mask_of(client.store, execution)
    shown: list[dict[str, Any]] = await run_views.told_aside(
        10 * len(steps), lambda: mask.data([step_json(path, step) for path, step in steps])
    )
    return shown


async def describe_step(client: Client, run: RunId, name: str, limit: int, cursor: str | None) -> dict[str, Any]:
    """One step with its attempts, failures first, by page."""
    row = await client.find(run)
    execution = await run_views.load(client.store, client.languages, row)
    path, step = find_step(flattened(await steps_of(client, execution)), run, name)
    attempts = await _attempts(client, run, path)
    ended_well = [attempt for attempt in attempts if "output" in attempt]
    begin = read_offset(cursor)
    page = sorted(attempts, key=lambda attempt: attempt["status"] != "failed")[begin : begin + limit]
    lines = await TaskLogReader(client, run, path[-1]).read()
    facts = {
        **step_json(path, step),
        "input": attempts[-1]["input"] if attempts else None,
        "output": ended_well[-1]["output"] if ended_well else None,
        "expressions": _expressions(execution, path[-1], attempts[-1] if attempts else None),
        "attempts": page,
        "effects": [effect for effect in await effects(client, run) if _is_of(effect["path"], path)],
        "logs": [line.plain() for line in lines[-LOG_LINES:]],
    } | ({"next": str(begin + limit)} if begin + limit < len(attempts) else {})
    mask = await run_views.mask_of(client.store, execution)
    hidden: dict[str, Any] = await run_views.told_aside(10 * len(page), lambda: mask.data(facts))
    return hidden


def _expressions(execution: Execution, step: str, attempt: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The expressions of what the step passes to its task, with the values that its last attempt was recorded with."""
    written = execution.dialect.written_arguments(execution.program, step)
    if attempt is None or written is None:
        return []
    expressions: list[dict[str, Any]] = []
    pending: list[tuple[tuple[str, ...], Any, Any]] = [((), written, attempt["input"])]
    while pending and len(expressions) < MOST_EXPRESSIONS:
        place, text, value = pending.pop()
        if isinstance(text, dict) and isinstance(value, dict):
            shared = [name for name in text if name in value]
            pending += [((*place, name), text[name], value[name]) for name in reversed(shared)]
        elif isinstance(text, list) and isinstance(value, list) and len(text) == len(value):
            pending += [((*place, str(at)), text[at], value[at]) for at in reversed(range(len(text)))]
        elif isinstance(text, str) and "{{" in text:
            expressions.append({"place": "/".join(place), "expression": text, "value": value})
    return expressions


def step_json(path: tuple[str, ...], step: StepOverview) -> dict[str, Any]:
    return {
        "step": "/".join(path),
        "name": step.name,
        "kind": step.kind,
        "status": str(step.state),
        "started_at": iso(step.began_at),
        "ended_at": iso(step.ended_at),
        "started_seq": step.began_seq or None,
        "ended_seq": step.ended_seq or None,
        "due_at": iso(step.due),
        "visits": {"total": step.visits, "failed": step.failed_visits, "open": step.open_visits},
        "attempts_made": step.attempts,
        "items": {"total": step.items, "done": step.items_done, "failed": step.items_failed} if step.items else None,
        "error": _failure_json(step.failure),
        "first_error": _failure_json(step.first_failure),
        "note": step.note or None,
        "child": step.child or None,
        "place": list(step.place),
    }


def _failure_json(failure: StepFailure | None) -> dict[str, Any] | None:
    if failure is None:
        return None
    return {
        "code": failure.code,
        "message": failure.message,
        "at": iso(failure.at) if failure.at else None,
        "seq": failure.seq or None,
        "attempt": failure.attempt,
        "task": failure.label or None,
        "item": failure.item if failure.item >= 0 else None,
        "frames": list(failure.frames),
    }


async def _attempts(client: Client, run: RunId, path: tuple[str, ...]) -> list[dict[str, Any]]:
    """What tasks of the step were given and answered, in order of their start."""
    history = await client.history(run, raw=True)
    return await run_views.told_aside(len(history), lambda: _attempts_in(history, path))


def _attempts_in(history: list[dict[str, Any]], path: tuple[str, ...]) -> list[dict[str, Any]]:
    attempts: dict[int, dict[str, Any]] = {}
    for event in history:
        if event["event"] == "TaskScheduled" and _is_of(event["path"], path):
            attempts[event["task"]] = {
                "task": event["task"],
                "seq": event["seq"],
                "path": event["path"],
                "provider": event["provider"],
                "attempt": event["attempt"],
                "delivery": 1,
                "status": "open",
                "input": event["arguments"] if event["arguments"] is not None else event["input"],
                "started_at": iso(event["at"]),
                "ended_at": None,
            }
        elif (attempt := attempts.get(event.get("task", -1))) is not None:
            if event["event"] == "TaskRedelivered":
                attempt["delivery"] = event["delivery"]
            elif event["event"] == "TaskEnded":
                attempt |= {"ended_at": iso(event["at"]), **_ending(event["outcome"])}
    return list(attempts.values())


def _ending(outcome: dict[str, Any]) -> dict[str, Any]:
    match outcome["type"]:
        case "Succeeded":
            return {"status": "done", "output": outcome.get("value")}
        case "Failed":
            return {"status": "failed", "error": {"code": outcome.get("code"), "message": outcome.get("message")}}
        case _:
            return {"status": "cancelled"}


def _is_of(task_path: str, step: tuple[str, ...]) -> bool:
    """Whether a task with this path belongs to the step; the path also counts items and visits."""
    names = [part.partition("[")[0] for part in step_of_path(task_path).split(" › ")]
    last = step[-1]
    return last in names and (len(step) == 1 or step[-2] in names or names[-1] == last)


def read_offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
        raise BadRequest("the cursor is not one that this route has answered")
    return int(cursor)
