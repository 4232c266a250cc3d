"""The plain way: a task without rules went well. What that makes of its pipeline is decided at once, as one event.

Nothing is rendered here, so nothing is asked for: where a rule, a patch or a reference has to be made, it goes the long
way through `pipeline` and `ending`, and the history tells the same (see `unfolding`).
"""

from perdure.dialects.playbook.plan.program import Program, Step, Task
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.values.references import attempt_uri
from perdure.kernel.turn import Turn


def pass_plainly(turn: Turn, number: int, step: Step, task: Task) -> bool:
    """Take the result of a thread's task as it landed, if nothing else is to be said of it; whether it was."""
    program: Program = turn.program
    thread: b.Thread = turn.body.threads[number]
    run: b.StepRun = turn.body.runs[thread.run]
    assert thread.outcome is not None
    result = thread.outcome.result
    if task.policy is not None or result.size > task.result.inline_max:
        return False
    to = thread.position + 1
    is_last = to == len(step.tasks)
    if not is_last and thread.visits >= program.bounds.max_task_visits:
        return False
    if thread.timer:
        turn.drop_timer(thread.timer)
    if not is_last or step.loop is not None or step.set or run.timers:
        turn.emit(p.TaskPassed(number, task.label, turn.now, to, is_last))
        return True
    uri, keeps = "", False
    if not result.is_null:
        uri = attempt_uri(turn.execution.id, task, thread.run, b.ALONE, thread.visits, thread.attempt)
        keeps = program.reads_references
    turn.emit(p.StepPassed(thread.run, number, task.label, turn.now, to, uri, keeps))
    return True
