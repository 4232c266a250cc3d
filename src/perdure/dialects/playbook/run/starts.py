"""Starts: of the execution with its one token (section 3), of a step-run, of an iteration of its loop (section 6)."""

from typing import Any

from perdure.dialects.playbook.plan.durations import BOUND_RANK
from perdure.dialects.playbook.plan.program import Loop, Program
from perdure.dialects.playbook.plan.workload import merge_workload
from perdure.dialects.playbook.run import ctx_patches, keychain_resolution
from perdure.dialects.playbook.run.ends import end_at_once, stop
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.task_errors import Error, error, template_message
from perdure.dialects.playbook.state.values import Patch
from perdure.dialects.playbook.values import lent_references
from perdure.dialects.playbook.values.template_scopes import control_makers, gather
from perdure.expressions.jinja import TemplateError
from perdure.kernel import jsontext
from perdure.kernel.turn import Turn
from perdure.kernel.values import Instant, Payload

IN_FLIGHT = 10  # of a parallel loop without `max_in_flight` (PBK-108)
SHARDS_IN_FLIGHT = 100


def begin(turn: Turn) -> None:
    """Create the initial token, or end at once if the request cannot be fulfilled."""
    program: Program = turn.program
    options = jsontext.decode(turn.state.options)
    workload_input = jsontext.decode(turn.text(turn.state.input))
    entry = options.get("entry_step", program.entry)
    seed = options.get("ctx", {})
    lent: list[lent_references.Lent] = []
    if options.get("lent"):
        workload_input, lent = workload_input["workload"], workload_input["references"]
    if program.missing:
        return end_at_once(turn, "REQUIREMENTS_MISSING", f"this executor lacks: {', '.join(program.missing)}")
    if entry not in program.steps:
        return end_at_once(turn, "UNKNOWN_STEP", f"there is no step {entry!r} to begin with")
    if options.get("return_step", entry) not in program.steps:
        return end_at_once(turn, "UNKNOWN_STEP", f"there is no step {options['return_step']!r} to return the result of")
    env = options.get("env", {})
    if not isinstance(workload_input, dict | None) or not isinstance(seed, dict) or not isinstance(env, dict):
        return end_at_once(turn, "PAYLOAD_INVALID", "the payload, the ctx seed and env must be maps")
    try:
        workload = jsontext.encode(
            merge_workload(program.workload, workload_input or {}, turn.execution.id, env, is_io=program.is_io)
        )
        ctx: Patch = tuple((name, jsontext.encode(value)) for name, value in seed.items())
        ctx_patches.check_values(ctx, "ctx")
        size = ctx_patches.measure(turn.body, ctx)
    except TemplateError as fault:
        return end_at_once(turn, "WORKLOAD_TEMPLATE", f"workload: {template_message(fault)}")
    except (jsontext.NotJson, ctx_patches.BadPatch) as problem:
        return end_at_once(turn, "PAYLOAD_INVALID", str(problem))
    timer = 0 if program.timeout is None else turn.set_timer(turn.now + program.timeout, BOUND_RANK)
    kept = turn.keep(workload)
    stored = lent_references.adopt(turn, lent)
    if program.keychain:
        task = keychain_resolution.resolve(turn, workload)
        turn.emit(p.RequestEvaluated(entry, kept, ctx, size, turn.now, task, timer, stored))
    else:
        _start(turn, entry, kept, ctx, size, timer, stored)
    return None


def begin_workflow(turn: Turn) -> None:
    """The keychain is resolved: now there is a token (PBK-180)."""
    body: b.Body = turn.body
    asked = body.request
    assert asked is not None
    _start(turn, asked.entry, asked.workload, (), body.ctx_size, asked.timer)


def _start(
    turn: Turn,
    entry: str,
    workload: Payload,
    ctx: Patch,
    size: int,
    timer: int,
    stored: tuple[p.Stored, ...] = (),
) -> None:
    program: Program = turn.program
    step = program.steps[entry]
    if step.is_plain and step.admission is None and not turn.body.paused:
        token = p.NewToken(1, entry, False, b"{}", run=1, tasks=len(step.tasks))
    else:
        token = p.NewToken(1, entry, step.admission is not None, b"{}")
    turn.emit(p.WorkflowStarted(token, workload, ctx, size, turn.now, timer, stored, bool(program.joins)))


def start_step(turn: Turn, number: int) -> None:
    """Consume an admitted token."""
    body: b.Body = turn.body
    program: Program = turn.program
    token = body.tokens[number]
    step = program.steps[token.step]
    if not token.is_final and body.runs_made >= program.bounds.max_step_runs:
        message = f"more than {program.bounds.max_step_runs} step-runs"
        stop(turn, error("limit", message, "STEP_RUNS"), is_failure=True)
        return
    items: bytes | None = None
    total, limit = 0, 1
    failed: Error | None = None
    if step.loop is not None:
        try:
            collection = _collection(turn, step.loop, token)
            items, total = jsontext.encode(collection), len(collection)
            limit = _limit(turn, step.loop, token)
        except _CannotLoop as problem:
            items, failed = None, problem.problem
    dues = [due for due in (_plus(turn.now, step.timeout), _plus(token.at, step.deadline)) if due is not None]
    kept = None if items is None else turn.keep(items)
    timers = tuple(turn.set_timer(due, BOUND_RANK) for due in dues)
    run = body.runs_made + 1
    turn.enumerated += total
    mode = "" if step.loop is None else step.loop.mode
    turn.emit(p.StepStarted(run, number, len(step.tasks), turn.now, timers, kept, total, limit, failed, mode))


def _plus(at: Instant, span: Instant | None) -> Instant | None:
    return None if span is None else at + span


class _CannotLoop(Exception):
    def __init__(self, problem: Error) -> None:
        super().__init__(problem.message)
        self.problem = problem


def _collection(turn: Turn, loop: Loop, token: b.Token) -> list[Any]:
    """Once per step-run; a map or a text is not silently taken for one element (PBK-103)."""
    makers = control_makers(turn, token.args, token.event)
    try:
        collection = loop.over.render(gather(makers, loop.over.reads))
    except TemplateError as fault:
        raise _CannotLoop(error("loop_collection", f"loop.in: {template_message(fault)}", source=token.step)) from None
    if not isinstance(collection, list):
        kind = {dict: "a map", str: "a text", type(None): "null"}.get(type(collection), type(collection).__name__)
        raise _CannotLoop(error("loop_collection", f"loop.in must give a list, not {kind}", source=token.step))
    if loop.fanout is not None and len(collection) > loop.fanout.max_shards:
        message = f"{len(collection)} shards, {loop.fanout.max_shards} are allowed"
        raise _CannotLoop(error("limit", message, "MAX_SHARDS", source=token.step))
    return collection


def _limit(turn: Turn, loop: Loop, token: b.Token) -> int:
    if not loop.is_parallel:
        return 1
    if loop.max_in_flight is None:
        return IN_FLIGHT if loop.fanout is None else SHARDS_IN_FLIGHT
    makers = control_makers(turn, token.args, token.event)
    try:
        limit = loop.max_in_flight.render(gather(makers, loop.max_in_flight.reads))
    except TemplateError as fault:
        raise _CannotLoop(error("template", f"max_in_flight: {template_message(fault)}", source=token.step)) from None
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        message = f"max_in_flight must be a whole number above 0, not {limit!r}"
        raise _CannotLoop(error("template", message, source=token.step))
    return limit


def start_iteration(turn: Turn, number: int) -> None:
    body: b.Body = turn.body
    loop = body.runs[number].loop
    assert loop is not None
    index = loop.repeats[0] if loop.repeats else loop.next
    turn.emit(p.IterationStarted(number, index, body.threads_made + 1))
