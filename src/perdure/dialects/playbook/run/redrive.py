"""Redrive: a Playbook that has ended goes on with the step-runs that failed, or where it was stopped.

Folding puts them back (`state/folding/redrives.py`). What is decided here are the time limits, which begin anew.
"""

from perdure.dialects.playbook.plan.durations import BOUND_RANK
from perdure.dialects.playbook.plan.program import Program
from perdure.dialects.playbook.plan.workload import merge_workload
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.names import CLAIM
from perdure.expressions.jinja import TemplateError
from perdure.kernel import inputs as i
from perdure.kernel.execution import Execution
from perdure.kernel.input_recording import describe_end
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Payload
from perdure.kernel.outcomes import Status
from perdure.kernel.turn import Turn


def why_not_reopened(execution: Execution, message: i.Reopen) -> str | None:
    body: b.Body = execution.body
    document = jsontext.decode(message.body) if isinstance(message.body, bytes) else None
    if isinstance(document, dict) and document.get("step"):
        return "a Playbook is redriven at the steps that failed; a step can be chosen only for a Story"
    if execution.state.status is Status.SUCCEEDED:
        return f"{describe_end(execution)}; there is nothing to redrive"
    if not body.begun:
        return "nothing of the run can be done again: it ended before its first step"
    if not (body.unfinished_runs or body.unfinished_tokens or body.final == "skipped"):
        return "nothing of the run can be done again: after each failure an arc has led on"
    return None


def missing_places(execution: Execution) -> list[str]:
    """What a newer document lacks of the places where the run would go on."""
    body: b.Body = execution.body
    program: Program = execution.program
    missing: list[str] = []
    for kept in body.unfinished_runs.values():
        step = program.steps.get(kept.run.step)
        if step is None or (step.loop is None) != (kept.run.loop is None and kept.run.origin is None):
            missing.append(f"the step {kept.run.step!r}" + (" with its loop" if step and kept.run.loop else ""))
            continue
        labels = [task.label for task in step.tasks]
        for thread in kept.run.stopped_threads.values():
            if (
                thread.position != CLAIM
                and thread.label
                and labels[thread.position : thread.position + 1] != [thread.label]
            ):
                missing.append(f"the task {thread.label!r} at position {thread.position + 1} of step {kept.run.step!r}")
    missing += [
        f"the step {kept.token.step!r}"
        for kept in body.unfinished_tokens.values()
        if kept.token.step not in program.steps
    ]
    return list(dict.fromkeys(missing))


def reopen(turn: Turn) -> None:
    body: b.Body = turn.body
    program: Program = turn.program
    workload = _workload(turn) if body.is_changed else None
    timer = 0 if program.timeout is None else turn.set_timer(turn.now + program.timeout, BOUND_RANK)
    timers = [(number, _limits(turn, kept.run)) for number, kept in body.unfinished_runs.items()]
    limited = tuple((number, limits) for number, limits in timers if limits)
    turn.emit(p.WorkflowReopened(turn.now, timer, limited, workload))


def _workload(turn: Turn) -> Payload:
    """Of a fork with another input or a newer document. The input was found to be a map before it was stored."""
    program: Program = turn.program
    options = jsontext.decode(turn.state.options)
    workload = jsontext.decode(turn.text(turn.state.input)) or {}
    if options.get("lent") and "workload" in workload:
        workload = workload["workload"]
    try:
        merged = merge_workload(
            program.workload, workload, turn.execution.id, options.get("env", {}), is_io=program.is_io
        )
    except TemplateError:
        merged = workload
    return turn.keep(jsontext.encode(merged))


def _limits(turn: Turn, run: b.StepRun) -> tuple[int, ...]:
    """None for a step-run that is only routed, or that consumes its token once more."""
    if run.origin is not None or (run.boundary is not None and run.error is None):
        return ()
    step = turn.program.steps[run.step]
    spans = [span for span in (step.timeout, step.deadline) if span is not None]
    return tuple(turn.set_timer(turn.now + span, BOUND_RANK) for span in spans)
