"""One internal move of a run: what is next, in a fixed order.

Gates that may have opened come first, then what has ended, then what may start: so a patch re-evaluates admission
before anything else happens, and every order is the same after a crash.
"""

from collections.abc import Callable

from perdure.dialects.playbook import tools
from perdure.dialects.playbook.plan.program import Loop, OnFailure, Program, Task
from perdure.dialects.playbook.run import (
    admission,
    completion,
    ends,
    joins,
    loop,
    routing,
    sealed_tasks,
    starts,
    worker_pipelines,
)
from perdure.dialects.playbook.run.task_rules import Judgement, RuleDecision, read_judgement
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.names import CLAIM
from perdure.dialects.playbook.state.task_errors import error, template_message
from perdure.dialects.playbook.state.values import Value
from perdure.dialects.playbook.values import io_names
from perdure.dialects.playbook.values.template_scopes import (
    Makers,
    gather,
    gather_plain,
    pipeline_makers,
    with_task_args,
)
from perdure.expressions.jinja import TemplateError
from perdure.kernel import inputs as i
from perdure.kernel.evaluation_trace import note_site
from perdure.kernel.turn import Turn

# Access to members of an enumeration is slow, and every step needs these.
_FAIL_FAST = OnFailure.FAIL_FAST
_READY = b.ThreadPhase.READY

# One pass through a step's tasks: start an attempt, accept its outcome, let the task's rules decide (section 5).

NOTHING: frozenset[str] = frozenset()


def move(turn: Turn, number: int) -> None:
    """The next move of a thread that has one."""
    body: b.Body = turn.body
    program: Program = turn.program
    thread = body.threads[number]
    step = program.steps[body.runs[thread.run].step]
    position = thread.position
    task = step.tasks[position] if position >= 0 else step.task_at(position)  # a call would be paid by every step
    if thread.phase is _READY:
        _begin(turn, number, task, step.loop)
    else:
        makers = pipeline_makers(turn, number, task, step.loop)
        if program.is_io:
            args = io_names.task_args(task.fields.get("args"), lambda template: gather(makers, template.reads))
            makers = with_task_args(makers, args)
        RuleDecision(turn, number, thread, step, task, makers).apply(_judged(turn, number))


def _judged(turn: Turn, number: int) -> Judgement | None:
    """What the worker of this pipeline has made of the outcome that this turn brings."""
    entry = turn.input
    if not isinstance(entry, i.PipelineResult) or entry.pipeline != number:
        return None
    if any(isinstance(event, p.OutcomeJudged) and event.thread == number for event in turn.events):
        return None  # that was another outcome, of a task behind it that needed no worker
    return read_judgement(entry.judged)


def _begin(turn: Turn, number: int, task: Task, loop: Loop | None) -> None:
    """Render the task's fields and pass them to its tool; a rendering error is an outcome too (PBK-092)."""
    body: b.Body = turn.body
    needs_more = turn.program.is_io or task.may_be_sealed or task.pool or turn.routes or task.kind in tools.KINDS
    if needs_more or not _begin_plainly(turn, number, task, body.runs[body.threads[number].run].args):
        _begin_with_all(turn, number, task, pipeline_makers(turn, number, task, loop))


def _begin_plainly(turn: Turn, number: int, task: Task, args: Value) -> bool:
    """For a registered provider and templates that read only arguments and the workload; False: nothing was done."""
    fields = dict(task.fixed)
    call = tools.ToolCall(turn, number, task, fields, {})
    for name, template in task.fields.items():
        scope = gather_plain(turn, template.reads, args)
        if scope is None:
            return False
        note_site("fields", within=(name,))
        try:
            fields[name] = template.render(scope)
        except TemplateError as fault:
            call.fail(error("template", f"{name}: {template_message(fault)}", source=task.label))
            return True
    tools.PROVIDER_KIND.start(call)
    return True


def _begin_with_all(turn: Turn, number: int, task: Task, makers: Makers) -> None:
    call = tools.ToolCall(turn, number, task, dict(task.fixed), makers)
    left = sealed_tasks.left_fields(turn.program, task, turn.body.threads[number]) if task.may_be_sealed else NOTHING
    for name, template in task.fields.items():  # `args` first
        if name in left:
            continue
        note_site("fields", within=(name,))
        try:
            call.fields[name] = template.render(gather(makers, template.reads))
        except TemplateError as fault:
            call.fail(error("template", f"{name}: {template_message(fault)}", source=task.label))
            return
        if name == "args" and turn.program.is_io and isinstance(call.fields[name], dict):
            makers = with_task_args(makers, lambda _: call.fields["args"])
    pipeline = None
    is_claim = turn.body.threads[number].position == CLAIM
    if (task.pool or turn.routes) and not is_claim and not (turn.program.is_io and "args" in left):
        pipeline = worker_pipelines.pipeline_of(turn, number, task, makers)
    if task.may_be_sealed and sealed_tasks.is_needed(call, left):
        sealed_tasks.start(call, left, makers)
    else:
        tools.start(call)
    if pipeline is not None:
        started = turn.body.threads[number].number
        if started in turn.state.tasks and turn.state.tasks[started].pool:
            turn.offer_pipeline(started, pipeline)


def advance(turn: Turn) -> bool:
    body: b.Body = turn.body
    if not body.begun:
        return _start(turn, body)
    if body.unevaluated:
        admission.decide_admission(turn, _first(body.unevaluated))
    elif body.arriving:
        joins.arrive(turn, _first(body.arriving))
    elif body.closing:
        ends.close(turn, _first(body.closing))
    elif body.routing and not body.paused:
        _stop_if_hurried(turn, routing.route, next(iter(body.routing)))
    elif body.incomplete_forks and not body.paused:
        _stop_if_hurried(turn, joins.fail_join, _first(body.incomplete_forks))
    elif body.admitted and not body.paused:
        starts.start_step(turn, _first(body.admitted))
    elif body.looping:
        loop.start_iteration(turn, _first(body.looping))
    elif body.ready_threads:
        move(turn, next(iter(body.ready_threads)))
    elif body.runs or body.paused:
        return False
    else:
        return completion.end_if_idle(turn)
    return True


def _start(turn: Turn, body: b.Body) -> bool:
    """Before the first token: the request, and then its keychain, which a worker resolves."""
    if body.request is None:
        starts.begin(turn)
    elif body.request.is_resolved:
        starts.begin_workflow(turn)
    else:
        return False
    return True


def _first(queue: b.Queue) -> int:
    return next(iter(queue))


def _stop_if_hurried(turn: Turn, move: Callable[[Turn, int], None], number: int) -> None:
    """A move that may fail a branch; with `fail_fast` the first failure ends the execution."""
    body: b.Body = turn.body
    program: Program = turn.program
    before = body.unhandled
    move(turn, number)
    is_fast = program.completion.on_failure is _FAIL_FAST
    if is_fast and body.unhandled > before and body.stopped is None:
        first = next(failure for failure in body.failures if not failure.handled)
        ends.stop(turn, first.error, is_failure=False)
