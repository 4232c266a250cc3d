"""The steps of a run as JSON: each at a glance, and one with its inputs, outputs, attempts, effects and log lines."""

from typing import Any

from msgspec.structs import replace

from perdure.engine.client import Client
from perdure.engine.runs import run_views
from perdure.engine.runs.effects import effects
from perdure.engine.runs.run_index import IndexedTask, RunIndex
from perdure.kernel.events import Event
from perdure.kernel.execution import Execution
from perdure.kernel.graphs.step_overview import StepFailure, StepOverview, flattened
from perdure.kernel.json_values.values import Instant, RunId
from perdure.stores.protocol import RunRow
from perdure.views.runs.log_reader import TaskLogReader
from perdure.views.runs.progress_events import step_of_path
from perdure.views.runs.run_overview import find_step, index_of, steps_of
from perdure.views.runs.run_pages import page_mark, read_page_cursor, write_page_cursor
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
    """One step with its attempts, by page; first those that had failed when the first page was read."""
    row = await client.find(run)
    execution = await run_views.load(client.store, client.languages, row)
    path, step = find_step(flattened(await steps_of(client, execution)), run, name)
    tasks, recorded = await index_of(client, run, lambda index: (_tasks_of(index, path), index.recorded))
    ended_well = [task for task in tasks if task.status == "done"]
    mark = page_mark(["step", run, path])
    seen, begin = (recorded, 0) if cursor is None else read_page_cursor(cursor, mark, (int, int))
    page = sorted(tasks, key=lambda task: task.status != "failed" or task.ended > seen)[begin : begin + limit]
    attempts = await _attempts(client, row, [*page, *tasks[-1:], *ended_well[-1:]])
    last = attempts[len(page)] if tasks else None
    lines = await TaskLogReader(client, run, path[-1]).read()
    facts = {
        **step_json(path, step),
        "input": None if last is None else last["input"],
        "output": attempts[-1]["output"] if ended_well else None,
        "expressions": _expressions(execution, path[-1], last),
        "attempts": attempts[: len(page)],
        "effects": [effect for effect in await effects(client, run) if _is_of(effect["path"], path)],
        "logs": [line.plain() for line in lines[-LOG_LINES:]],
    } | ({"next": write_page_cursor([seen, begin + limit], mark)} if begin + limit < len(tasks) else {})
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


def _tasks_of(index: RunIndex, path: tuple[str, ...]) -> list[IndexedTask]:
    """Copies, in order of their start: the index may read on."""
    return [replace(task) for task in index.tasks.values() if _is_of(task.path, path)]


async def _attempts(client: Client, row: RunRow, tasks: list[IndexedTask]) -> list[dict[str, Any]]:
    """What tasks of the step were given and answered."""
    dialect = run_views.dialect_of(client.languages, row.language)
    numbers = {number for task in tasks for number in (task.scheduled, task.ended) if number}
    events = await run_views.events_at(client.store, dialect, row.id, numbers)
    return await run_views.told_aside(len(events), lambda: [_attempt(task, events) for task in tasks])


def _attempt(task: IndexedTask, events: dict[int, tuple[Instant, Event]]) -> dict[str, Any]:
    begun = run_views.numbered(task.scheduled, *events[task.scheduled])
    attempt = {
        "task": task.task,
        "seq": task.scheduled,
        "path": task.path,
        "provider": begun["provider"],
        "attempt": begun["attempt"],
        "delivery": task.delivery,
        "status": task.status,
        "input": begun["arguments"] if begun["arguments"] is not None else begun["input"],
        "started_at": iso(begun["at"]),
        "ended_at": None,
    }
    if task.ended:
        ended = run_views.numbered(task.ended, *events[task.ended])
        attempt |= {"ended_at": iso(ended["at"]), **_answer(ended["outcome"])}
    return attempt


def _answer(outcome: dict[str, Any]) -> dict[str, Any]:
    match outcome["type"]:
        case "Succeeded":
            return {"output": outcome.get("value")}
        case "Failed":
            return {"error": {"code": outcome.get("code"), "message": outcome.get("message")}}
        case _:
            return {}


def _is_of(task_path: str, step: tuple[str, ...]) -> bool:
    """Whether a task with this path belongs to the step; the path also counts items and visits."""
    names = [part.partition("[")[0] for part in step_of_path(task_path).split(" › ")]
    last = step[-1]
    return last in names and (len(step) == 1 or step[-2] in names or names[-1] == last)
