"""Scopes of templates (PBK-062, 077, 118): only the scopes that a template names are built."""

from collections.abc import Callable, Iterable
from typing import Any

from perdure.dialects.playbook.plan.program import Loop, LoopCursor, Task
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state.loop_state import LoopState
from perdure.dialects.playbook.state.names import CLAIM, run_id, timestamp
from perdure.dialects.playbook.state.values import Reader, Value, Variables
from perdure.dialects.playbook.values import io_names, reference_reads
from perdure.dialects.playbook.values.references import part_ref, reference_of, task_run_id
from perdure.dialects.playbook.values.results import shard_names
from perdure.expressions.jinja import Template, TemplateReads, all_reads
from perdure.kernel.evaluation_trace import note_context
from perdure.kernel.json_values import jsontext
from perdure.kernel.turn import Turn

Members = frozenset[str] | None
Maker = Callable[[Members], Any]
"""Builds a scope with these members only, or all of it (None)."""

Makers = dict[str, Maker]

BARE = ""  # under this name: the maker of what bare names mean, in profile "io"


def gather(makers: Makers, reads: TemplateReads) -> dict[str, Any]:
    """What a template reads, as far as it exists here; anything else is undefined to it."""
    if not reads.members:
        return {}
    scope = {name: makers[name](members) for name, members in reads.members.items() if name in makers}
    if BARE in makers and (names := reads.names - makers.keys()):
        scope |= makers[BARE](io_names.BareReads(names, reads.members))
    return scope


def gather_plain(
    turn: Turn, reads: TemplateReads, args: Value, event: b.Boundary | None = None
) -> dict[str, Any] | None:
    """`gather` without makers, for a template that reads only `args`, `workload` or the `event`; None: it reads more.

    Most templates read nothing else, and a dozen makers cost more than rendering them. Not for profile "io".
    """
    note_context((args, event))
    scope: dict[str, Any] = {}
    for name, members in reads.members.items():
        if name == "args":
            scope[name] = args.read(turn.text)
        elif name == "workload":
            scope[name] = turn.body.workload.read(turn.text)
        elif name == "event" and event is not None:
            scope[name] = event_view(event, turn.text, members)
        else:
            return None
    return scope


def gather_all(makers: Makers, templates: Iterable[Template]) -> dict[str, Any]:
    return gather(makers, all_reads(template.reads for template in templates))


def execution_makers(turn: Turn) -> Makers:
    """A new map on each call: the caller may add to it."""
    body: b.Body = turn.body
    makers: Makers = {
        "workload": lambda _: body.workload.read(turn.text),
        "ctx": lambda _: body.ctx.data,
        "execution_id": lambda _: turn.execution.id,
        "steps": lambda members: steps_view(body, turn.text, members),
    }
    if turn.program.is_io:
        makers["job"] = lambda _: dict.fromkeys(("uuid", "id", "execution_id"), turn.execution.id)
    return makers


def control_makers(turn: Turn, args: Value, event: b.Boundary, local: Variables | None = None) -> Makers:
    """For admission, routing and `loop.in`."""
    note_context((args, event))
    makers = execution_makers(turn)
    makers["args"] = lambda _: args.read(turn.text)
    makers["event"] = lambda members: event_view(event, turn.text, members)
    if event.fanin:
        makers["fanin"] = lambda _: fanin_view(event)
    if turn.program.is_io:
        makers["output"] = lambda _: _output_at_boundary(event, turn.text)
        makers["step"] = lambda _: {} if local is None else local.data
        makers[BARE] = _bare_names(makers, io_names.results_by_step(turn.body, turn.text, event))
    return makers


def _bare_names(makers: Makers, results: io_names.Layer, resolve: io_names.Resolve | None = None) -> Maker:
    first = [makers[name] for name in ("iter", "args") if name in makers]
    by_label = [makers["results"]] if "results" in makers else []

    def in_loop(names: Members) -> dict[str, Any]:
        is_read = names is not None and "loop_index" in names and "iter" in makers
        return {"loop_index": makers["iter"](None)["index"]} if is_read else {}

    def find(names: Members) -> dict[str, Any]:
        assert names is not None
        own = [io_names.as_results(layer, io_names.members_of(names), resolve) for layer in (*by_label, results)]
        layers: list[io_names.Layer] = [*first, lambda _: makers["ctx"](None), *own, makers["workload"], in_loop]
        return io_names.look_up(layers, names)

    return find


def _output_at_boundary(event: b.Boundary, text: Reader) -> dict[str, Any]:
    view = event_view(event, text)
    return io_names.output(view["status"], view["result"], view["error"]) if event.step else {}


def with_task_args(makers: Makers, layer: io_names.Layer) -> Makers:
    """The same, with the task's own args before every other meaning of a bare name."""
    under = makers[BARE]

    def find(names: Members) -> dict[str, Any]:
        assert names is not None
        members = io_names.members_of(names)
        return io_names.look_up([layer, lambda missing: under(io_names.BareReads(missing, members))], names)

    return {**makers, BARE: find}


def pipeline_makers(turn: Turn, number: int, task: Task, loop: Loop | None) -> Makers:
    """For the fields and rules of a task."""
    body: b.Body = turn.body
    thread = body.threads[number]
    run = body.runs[thread.run]
    note_context(number)
    makers = execution_makers(turn)
    makers["args"] = lambda _: run.args.read(turn.text)
    makers["_task"] = lambda _: task.label
    makers["_attempt"] = lambda _: thread.attempt
    makers["_prev"] = lambda _: thread.prev.read(turn.text)
    makers["results"] = lambda members: {
        label: value.read(turn.text) for label, value in thread.results.items() if members is None or label in members
    }
    makers["_idempotency_key"] = lambda _: turn.execution.idempotency_key(task_key(thread))
    if thread.patch:
        makers["ctx"] = lambda _: body.ctx.overlaid(tuple(thread.patch))
    if thread.position == CLAIM and loop is not None and loop.cursor is not None:
        makers["__frame_max_rows"] = _constant(loop.cursor.max_rows)
        makers["__frame_key"] = _constant(f"{turn.execution.id}/{task_key(thread)}")
    elif loop is not None:
        makers["iter"] = lambda _: iter_view(turn, thread, run, loop)
    if turn.program.is_io:
        makers["step"] = lambda _: thread.local.data
        results = io_names.results_by_step(body, turn.text)
        makers[BARE] = _bare_names(makers, results, lambda reference: _body_of(turn, reference))
    return makers


def _body_of(turn: Turn, reference: dict[str, Any]) -> Any:
    """The body behind a reference; the reference itself if it is not available."""
    try:
        payload = reference_reads.resolve(turn, reference).payload
        return jsontext.decode(reference_reads.reader(turn, str(reference.get("ref")))(payload))
    except reference_reads.UnresolvedReference:
        return reference


def task_path(thread: b.PipelineThread, run: b.StepRun, task: Task) -> str:
    """The site of a task-run: stable over its attempts and deliveries."""
    iteration = "" if thread.index <= b.ALONE else f"[{thread.index}]"
    if thread.index < b.ALONE:
        iteration = f"[frame {b.ALONE - thread.index}]"
    return f"{run.step}#{run.token}{iteration}/{task.label}#{thread.ordinal}"


def task_key(thread: b.PipelineThread) -> str:
    """The external name of a task-run below its execution; without a loop there is no iteration in it (PBK-195)."""
    return task_run_id(thread.run, thread.index, thread.ordinal)


def iter_view(turn: Turn, thread: b.PipelineThread, run: b.StepRun, loop: Loop) -> dict[str, Any]:
    assert run.loop is not None
    bound: dict[str, Any] = {
        loop.iterator: _element(turn, thread.index, run.loop, loop.cursor),
        "index": thread.index,
        "count": None if run.loop.is_cursor else run.loop.total,  # nobody knows how many a cursor has
    }
    parent = jsontext.decode(turn.state.options).get("iter")
    if parent is not None:
        bound["parent"] = parent
    return {**thread.iter.data, **bound}


def _element(turn: Turn, index: int, state: LoopState, cursor: LoopCursor | None) -> Any:
    if cursor is None:
        return state.items.read(turn.text)[index]
    first, frame = state.frame_of(index)
    rows = frame.rows.read(turn.text)["rows"]
    return rows if cursor.takes_frames else rows[index - first]


def _constant(value: Any) -> Maker:
    return lambda _: value


def event_view(event: b.Boundary, text: Reader, members: Members = None) -> dict[str, Any]:
    """The boundary event as guards read it (PBK-119); the first one of all has only a name (PBK-053)."""
    if not event.step:
        return {"name": event.name}
    names = _EVENT if members is None else [name for name in members if name in _EVENT]
    view = {name: _EVENT[name](event, text) for name in names}
    if event.fanin and (members is None or "fanin" in members):
        view["fanin"] = fanin_view(event)
    return view


def _error(event: b.Boundary, text: Reader) -> dict[str, Any] | None:
    return None if event.error is None else event.error.data()


def _payload(event: b.Boundary, text: Reader) -> dict[str, Any]:
    result, stats = event.result.read(text), event.result.stats
    if stats is None and event.name == "loop.done":  # of a cursor, which does not keep results
        stats = result["stats"]
    return {
        "result": result,
        "error": _error(event, text),
        "stats": stats,
        "reference": reference_of(event.result, event.uri, text),
    }


_EVENT: dict[str, Callable[[b.Boundary, Reader], Any]] = {
    "name": lambda event, text: event.name,
    "step": lambda event, text: event.step,
    "step_run_id": lambda event, text: run_id(event.run),
    "status": lambda event, text: "ok" if event.ok else "error",
    "result": lambda event, text: event.result.read(text),
    "error": _error,
    "args": lambda event, text: event.args.read(text),
    "attempt": lambda event, text: event.attempt,
    "timestamp": lambda event, text: timestamp(event.at),
    "payload": _payload,
}
"""The members of a boundary event."""


def fanin_view(event: b.Boundary) -> dict[str, Any]:
    """How a fan-out came together (PBK-134)."""
    succeeded, failed = event.counts
    parts = enumerate(event.result.parts or ())
    refs = [{"ref": part_ref(event.uri, index, part), **shard_names(event.run, index)} for index, part in parts]
    return {"status": event.fanin, "succeeded": succeeded, "failed": failed, "refs": refs}


def outcome_view(thread: b.PipelineThread, text: Reader) -> dict[str, Any]:
    """The envelope that task rules read (PBK-074)."""
    outcome = thread.outcome
    assert outcome is not None
    extras = {} if outcome.extras is None else jsontext.decode(outcome.extras)
    return {
        "status": "ok" if outcome.error is None else "error",
        "result": outcome.result.read(text) if outcome.error is None else None,
        "error": None if outcome.error is None else outcome.error.data(),
        "meta": {
            "attempt": thread.attempt,
            "duration_ms": outcome.duration // 1000,
            "ts": timestamp(outcome.at),
            "trace_id": None,
        },
        **extras,
    }


def steps_view(body: b.Body, text: Reader, members: Members) -> dict[str, Any]:
    """Earlier results by step (PBK-157)."""
    return {
        name: {
            "status": "ok" if tally.ok else "error",
            "result": tally.result.read(text),
            "reference": reference_of(tally.result, tally.uri, text),
            "runs": tally.finished,
        }
        for name, tally in body.tallies.items()
        if tally.finished and (members is None or name in members)
    }
