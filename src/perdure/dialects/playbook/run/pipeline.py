"""One pass through a step's tasks: start an attempt, take its outcome in, let the task's rules decide (section 5).

begin ──▶ the tool works ──▶ end ──▶ judge ──▶ next task | same task again | the pipeline's end
"""

from perdure.dialects.playbook import tools
from perdure.dialects.playbook.plan.program import Program, Task
from perdure.dialects.playbook.run import sealed_tasks
from perdure.dialects.playbook.run.task_rules import RuleDecision
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state.task_errors import error, said
from perdure.dialects.playbook.values import io_names
from perdure.dialects.playbook.values.template_scopes import Makers, gather, pipeline_makers, with_task_args
from perdure.expressions.jinja import TemplateError
from perdure.kernel.turn import Turn

NOTHING: frozenset[str] = frozenset()


def move(turn: Turn, number: int) -> None:
    """The next move of a thread that has one."""
    body: b.Body = turn.body
    program: Program = turn.program
    thread = body.threads[number]
    step = program.steps[body.runs[thread.run].step]
    task = step.tasks[thread.position]
    makers = pipeline_makers(turn, number, task, step.loop)
    if thread.phase is b.Phase.READY:
        _begin(turn, number, task, makers)
    else:
        if program.is_io:
            args = io_names.task_args(task.fields.get("args"), lambda template: gather(makers, template.reads))
            makers = with_task_args(makers, args)
        RuleDecision(turn, number, thread, step, task, makers).pass_on()


def _begin(turn: Turn, number: int, task: Task, makers: Makers) -> None:
    """Render the task's fields and hand them to its tool; what cannot be rendered is an outcome too (PBK-092)."""
    call = tools.Call(turn, number, task, dict(task.fixed), makers)
    left = sealed_tasks.left_fields(turn.program, task, turn.body.threads[number]) if task.may_be_sealed else NOTHING
    for name, template in task.fields.items():  # `args` first
        if name in left:
            continue
        try:
            call.fields[name] = template.render(gather(makers, template.reads))
        except TemplateError as fault:
            call.fail(error("template", f"{name}: {said(fault)}", source=task.label))
            return
        if name == "args" and turn.program.is_io and isinstance(call.fields[name], dict):
            makers = with_task_args(makers, lambda _: call.fields["args"])
    if task.may_be_sealed and sealed_tasks.is_needed(call, left):
        sealed_tasks.start(call, left, makers)
    else:
        tools.start(call)
