"""Pipelines of a pool: what leaves the server with a task, and what a worker makes of its outcome (SRV-034).

The worker chooses the rule that applies and renders its patches, with the same code as the server (`task_rules`). It
reads `ctx` as it was when the task was handed out. The server checks that the document has such a rule, records what
the worker says, and renders the next task; what the worker leaves open, the server decides.
"""

from collections.abc import Callable, Mapping
from typing import Any

from perdure.dialects.playbook import tools
from perdure.dialects.playbook.plan.program import Program, Step, Task
from perdure.dialects.playbook.run import ctx_patches
from perdure.dialects.playbook.run.sealed_tasks import narrowed
from perdure.dialects.playbook.run.task_rules import add_outcome, choose_rule
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state.values import Value
from perdure.dialects.playbook.values.template_scopes import Makers, gather, gather_all
from perdure.expressions.jinja import TemplateReads, all_reads
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, Payload
from perdure.kernel.outcomes import Outcome, Succeeded
from perdure.kernel.tasks.assignments import OfferedPipeline, short_name
from perdure.kernel.turn import Turn

LARGEST = 64 * 1024
"""Bytes that go with a task, and come back with its outcome. A pipeline that needs more leaves task by task."""

_OUTCOME = frozenset({"outcome", "output"})


# At the server.


def pipeline_of(turn: Turn, number: int, task: Task, makers: Makers) -> OfferedPipeline | None:
    """What goes with a task that is about to start. Ask for it before anything is emitted: it reads values."""
    program: Program = turn.program
    thread: b.PipelineThread = turn.body.threads[number]
    step = program.steps[turn.body.runs[thread.run].step]
    if len(step.tasks) == 1 and task.policy is None:
        return None
    reads = _reads(task)
    values = gather(makers, reads)
    body = {
        "program": turn.state.program.hex(),
        "step": turn.body.runs[thread.run].step,
        "task": thread.position,
        "label": task.label,
        "attempt": thread.attempt,
        "ctx": makers["ctx"](None),
        "scopes": {name: narrowed(value, reads.members.get(name)) for name, value in values.items()},
    }
    try:
        text = jsontext.encode(body)
    except jsontext.NotJson:
        return None
    return OfferedPipeline(number, _needs(step, task), text) if len(text) <= LARGEST else None


def _needs(step: Step, task: Task) -> tuple[str, ...]:
    """What the tasks of the pipeline that go to the same pool are done by."""
    providers = [
        (tools.kind_of(other.kind).provider or "").format(kind=other.kind)
        for other in step.tasks
        if other.pool == task.pool
    ]
    return tuple(sorted({short_name(provider, "playbook") for provider in providers if provider}))


def _reads(task: Task) -> TemplateReads:
    """What the rules of a task read, besides its outcome."""
    reads: list[TemplateReads] = []
    for rule in task.policy.rules if task.policy is not None else ():
        if rule.when is not None:
            reads.append(rule.when.reads)
        for patch in (rule.then.set_ctx, rule.then.set_iter, rule.then.set_step):
            reads += [template.reads for template in patch.values()]
    together = all_reads(reads)
    return TemplateReads({name: members for name, members in together.members.items() if name not in _OUTCOME})


# At the worker.


def judge(
    program: Program, pipeline: Mapping[str, Any], outcome: Outcome, began: Instant, ended: Instant
) -> dict[str, Any] | None:
    """The rule that applies to an outcome, and its patches; None: the server is to decide.

    That is so without rules, for a result that is kept by reference, and where a template fails: the server then says
    what is wrong.
    """
    task = program.steps[pipeline["step"]].tasks[pipeline["task"]]
    if task.policy is None:
        return None
    tool_result = tools.kind_of(task.kind).on_result(outcome, _text)
    result = (
        outcome.value
        if tool_result.result is None and isinstance(outcome, Succeeded)
        else tool_result.result or b"null"
    )
    if tool_result.lent or not isinstance(result, bytes) or len(result) > task.result.inline_max:
        return None
    extras = jsontext.encode(tool_result.extras) if tool_result.extras else None
    thread = b.PipelineThread(0, attempt=pipeline["attempt"])
    thread.outcome = b.TaskOutcome(Value(result), tool_result.error, extras, ended - began, ended)
    makers: Makers = {name: _always(value) for name, value in pipeline["scopes"].items()}
    add_outcome(makers, thread, _text, is_io=program.is_io)
    errors: list[str] = []
    rule, then, problem = choose_rule(task, tool_result.error, makers, errors)
    if problem is not None or errors:
        return None
    try:
        patches = {
            name: {
                key: jsontext.decode(text)
                for key, text in ctx_patches.render(assigned, gather_all(makers, assigned.values()), name[4:])
            }
            for name, assigned in (("set_ctx", then.set_ctx), ("set_iter", then.set_iter), ("set_step", then.set_step))
            if assigned
        }
    except ctx_patches.BadPatch:
        return None
    return {"rule": {b.ELSE: "else", b.NO_RULE: None}.get(rule, rule), "directive": then.do.value, **patches}


def _text(payload: Payload) -> bytes:
    assert isinstance(payload, bytes)  # a worker has values, not references to them
    return payload


def _always(value: Any) -> Callable[[Any], Any]:
    return lambda _: value
