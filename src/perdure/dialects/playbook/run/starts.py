"""Starts: of the execution with its one token (section 3), and of a step-run."""

from perdure.dialects.playbook.plan.durations import BOUND_RANK
from perdure.dialects.playbook.plan.program import Program
from perdure.dialects.playbook.plan.workload import merge_workload
from perdure.dialects.playbook.run import ctx_patches, joins, keychain_resolution, loop
from perdure.dialects.playbook.run.ends import end_at_once, stop
from perdure.dialects.playbook.run.token_deadlines import bound_token, due_of, release_token, why_too_late
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.task_errors import Error, error, template_message
from perdure.dialects.playbook.state.values import Patch
from perdure.dialects.playbook.values import lent_references
from perdure.expressions.jinja import TemplateError
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, Payload
from perdure.kernel.turn import Turn


def begin(turn: Turn) -> None:
    """Create the initial token, or end at once if the request cannot be fulfilled."""
    program: Program = turn.program
    options = jsontext.decode(turn.state.options)
    workload_input = jsontext.decode(turn.text(turn.state.input))
    entry = options.get("entry_step", program.entry)
    seed = options.get("ctx", {})
    lent_bodies: list[lent_references.Lent] = []
    if options.get("lent"):
        workload_input, lent_bodies = workload_input["workload"], workload_input["references"]
    if program.missing:
        return end_at_once(turn, "REQUIREMENTS_MISSING", f"this executor lacks: {', '.join(program.missing)}")
    if entry not in program.steps:
        return end_at_once(turn, "UNKNOWN_STEP", f"there is no step {entry!r} to start at")
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
    workload_payload = turn.keep(workload)
    stored = lent_references.adopt(turn, lent_bodies)
    if program.keychain:
        task = keychain_resolution.resolve(turn, workload)
        turn.emit(p.RequestEvaluated(entry, workload_payload, ctx, size, turn.now, task, timer, stored))
    else:
        _start(turn, entry, workload_payload, ctx, size, timer, stored)
    return None


def begin_workflow(turn: Turn) -> None:
    """The keychain is resolved: now there is a token (PBK-180)."""
    body: b.Body = turn.body
    request = body.request
    assert request is not None
    _start(turn, request.entry, request.workload, (), body.ctx_size, request.timer)


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


def start_step(turn: Turn, number: int, failed: Error | None = None) -> None:
    """Consume an admitted token, or one that has waited too long."""
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
    failed = failed or why_too_late(turn, step, token)
    if step.loop is not None and failed is None:
        try:
            collection = [] if step.loop.cursor is not None else loop.collection_of(turn, step.loop, token)
            items, total = jsontext.encode(collection), len(collection)
            limit = loop.limit_of(turn, step.loop, token)
        except loop.CannotLoop as problem:
            items, failed = None, problem.problem
    dues = []
    if failed is None:
        dues = [due for due in (_plus(turn.now, step.timeout), due_of(step, token)) if due is not None]
    release_token(turn, number)
    items_payload = None if items is None else turn.keep(items)
    timers = tuple(turn.set_timer(due, BOUND_RANK) for due in dues)
    run = body.runs_made + 1
    turn.enumerated += total
    mode = "" if step.loop is None else step.loop.mode
    turn.emit(p.StepStarted(run, number, len(step.tasks), turn.now, timers, items_payload, total, limit, failed, mode))


def expire_token(turn: Turn, number: int) -> None:
    """The deadline of a token that waits has passed: its step fails without having begun (PBK-193)."""
    body: b.Body = turn.body
    token = body.tokens[number]
    failed = why_too_late(turn, turn.program.steps[token.step], token)
    if failed is None:  # the run was moved to another document, with a later deadline
        bound_token(turn, number)
        return
    turn.drop_timer(body.wait_timer)
    consumed = joins.expire_round(turn, number) if token.state is b.TokenState.HELD else number
    start_step(turn, consumed, failed)


def _plus(at: Instant, span: Instant | None) -> Instant | None:
    return None if span is None else at + span
