"""From one block to the next, and to the end of the run (section 7)."""

from typing import Any

from perdure.dialects.story.plan.program import Program
from perdure.dialects.story.plan.step_graph import BLOCKS
from perdure.dialects.story.resources.durations import write_duration
from perdure.dialects.story.run.interruption import CANCELED
from perdure.dialects.story.run.step_end import skip
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body
from perdure.dialects.story.state.phases import DEFAULT_REASONS, Reason, StoryPhase
from perdure.dialects.story.values import offloaded_data
from perdure.dialects.story.values.references import may_refer
from perdure.dialects.story.values.schema_fit import misfits
from perdure.dialects.story.values.template_scope import Scope
from perdure.expressions.gotemplate import ExpressionError
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Payload
from perdure.kernel.outcomes import Cancelled, Failed, Status, Succeeded
from perdure.kernel.turn import Turn

LARGEST_OUTPUT = 1_048_576  # STY-217
NOT_RUN = "Skipped because"  # what is said of every step of a block that does not run

_STATUSES = {
    StoryPhase.SUCCEEDED: Status.SUCCEEDED,
    StoryPhase.TIMEOUT: Status.TIMED_OUT,
    StoryPhase.CANCELED: Status.CANCELLED,
    StoryPhase.FINISHED: Status.CANCELLED,
    StoryPhase.ABORTED: Status.CANCELLED,
}


def next_block(turn: Turn) -> None:
    """Every step of the current block has ended: enter the next block with steps, or end the run."""
    body: Body = turn.body
    for block in BLOCKS[BLOCKS.index(body.block) + 1 :]:
        if any(name not in body.steps for name in body.plan.blocks[block]):
            turn.emit(s.BlockEntered(block, turn.now))
            reason = _why_not(turn, block)
            if reason is not None:
                skip(turn, list(body.unstarted), reason)
            return
    _finish(turn)


def _why_not(turn: Turn, block: str) -> str | None:
    """Why a cleanup block does not run (STY-137, STY-188)."""
    body: Body = turn.body
    program: Program = turn.program
    stopped = body.interruption
    is_canceled = stopped is not None and stopped.cause == "cancel"
    if block == "finally":
        runs_finally = not is_canceled or program.settings.runs_finally_on_cancel
        return None if runs_finally else f"{NOT_RUN} the StoryRun was canceled"
    if is_canceled:
        return f"{NOT_RUN} the StoryRun was canceled"
    if _failures(body, "steps") or (stopped is not None and stopped.phase in (StoryPhase.FAILED, StoryPhase.TIMEOUT)):
        return None
    if stopped is not None and stopped.phase != StoryPhase.SUCCEEDED:
        return f"{NOT_RUN} the story was stopped by step '{stopped.step}'"
    return f"{NOT_RUN} story succeeded"


def _finish(turn: Turn) -> None:
    """Determine the final phase: the first row of the table that applies (STY-140)."""
    body: Body = turn.body
    program: Program = turn.program
    stopped = body.interruption
    cleanup = [*_failures(body, "finally"), *_failures(body, "compensations")]
    if stopped is not None and stopped.cause == "cancel":
        end_run(turn, StoryPhase.FINISHED, Reason.CANCELED, CANCELED, cleanup=cleanup)
        return
    if body.timed_out or (stopped is not None and stopped.cause == "timeout"):
        message = f"StoryRun exceeded timeout of {write_duration(program.bounds.get('story') or 0)}."
        end_run(turn, StoryPhase.TIMEOUT, Reason.TIMED_OUT, message, failed=_failures(body, "steps"), cleanup=cleanup)
        return
    main = _failures(body, "steps")
    for block, reason, block_title in (
        ("finally", Reason.CLEANUP_FAILED, "Finally"),
        ("compensations", Reason.COMPENSATION_FAILED, "Compensation"),
    ):
        if failed := _failures(body, block):
            message = f"{block_title} step {failed[0]} failed."
            end_run(turn, StoryPhase.FAILED, reason, message, failed=failed, hidden=main)
            return
    has_stopped_badly = stopped is not None and stopped.phase == StoryPhase.FAILED
    if main or has_stopped_badly:
        if program.plan.blocks["compensations"]:
            message = stopped.message if stopped is not None else "Story failed; compensations completed."
            end_run(turn, StoryPhase.COMPENSATED, Reason.COMPENSATED, message, failed=main)
        elif stopped is not None and has_stopped_badly:
            end_run(turn, StoryPhase.FAILED, Reason.EXECUTION_FAILED, stopped.message, failed=main)
        else:
            message = f"Story completed with failed step: {main[0]}."
            end_run(turn, StoryPhase.FAILED, Reason.DEPENDENCY_FAILED, message, failed=main)
        return
    if stopped is not None and stopped.phase != StoryPhase.SUCCEEDED:
        end_run(turn, StoryPhase(stopped.phase), Reason.CANCELED, stopped.message)
        return
    _succeed(turn, "" if stopped is None else stopped.message)


def _failures(body: Body, block: str) -> list[str]:
    """The steps of a block whose failure counts, in story order (STY-078)."""
    failures = []
    for name in body.plan.blocks[block]:
        state = body.steps.get(name)
        if (
            state is not None
            and state.phase.is_failure
            and not state.interrupted
            and name not in body.plan.allowed_to_fail
        ):
            failures.append(name)
    return failures


def allowed_failures(body: Body) -> list[str]:
    """Steps and branches that failed and are allowed to (STY-069)."""
    return sorted(
        name
        for name in body.plan.allowed_to_fail
        if (state := body.steps.get(name)) is not None and state.phase.is_failure and not state.interrupted
    )


def _succeed(turn: Turn, message: str) -> None:
    body: Body = turn.body
    program: Program = turn.program
    allowed = allowed_failures(body)
    if not message:
        message = (
            f"Completed with allowed failures: {', '.join(allowed)}."
            if allowed
            else "All steps completed successfully."
        )
    if program.spec.get("output") is None:
        end_run(turn, StoryPhase.SUCCEEDED, Reason.COMPLETED, message)
        return
    try:
        output = Scope(turn).render_output()
    except ExpressionError as problem:
        message = "Failed to evaluate final output template."
        end_run(
            turn, StoryPhase.FAILED, Reason.OUTPUT_RESOLUTION_FAILED, message, detail=str(problem).partition("\n")[0]
        )
        return
    schema = program.spec.get("outputsSchema")
    problems = "" if schema is None else misfits(schema, offloaded_data.hydrated(turn, output))
    if problems:
        message = f"Story output failed schema validation: {problems}"
        end_run(turn, StoryPhase.FAILED, Reason.OUTPUT_SCHEMA_FAILED, message)
        return
    text = jsontext.encode(output)
    if len(text) > LARGEST_OUTPUT:
        message = f"{message.rstrip('.')}, but the final output was too large to store."
        end_run(turn, StoryPhase.SUCCEEDED, Reason.COMPLETED, message, degraded=Reason.OUTPUT_RESOLUTION_FAILED)
        return
    end_run(turn, StoryPhase.SUCCEEDED, Reason.COMPLETED, message, output=text)


def end_run(
    turn: Turn,
    phase: StoryPhase,
    reason: str,
    message: str,
    *,
    output: bytes | None = None,
    failed: list[str] | None = None,
    hidden: list[str] | None = None,
    cleanup: list[str] | None = None,
    detail: str = "",
    degraded: str = "",
) -> None:
    body: Body = turn.body
    error: dict[str, Any] | None = None
    if phase is not StoryPhase.SUCCEEDED and (DEFAULT_REASONS[phase] != Reason.CANCELED or cleanup):
        error = {"type": str(reason), "message": message, "failedSteps": _describe_steps(body, failed)}
        if hidden:
            error["mainFailedSteps"] = _describe_steps(body, hidden)
        if cleanup:
            error["cleanup"] = _describe_steps(body, cleanup)
        if detail:
            error["detail"] = detail
    if body.timer:
        turn.drop_timer(body.timer)
    if not degraded and body.topology is not None and body.topology.is_lost:
        degraded = Reason.TOPOLOGY_TERMINATED
    stored_output: Payload | None = None if output is None else turn.keep(output)
    text = None if error is None else jsontext.encode(error)
    turn.emit(s.StoryEnded(phase, reason, message, turn.now, stored_output, text, degraded))
    _end_execution(turn, phase, str(reason), message, stored_output, text)


def _describe_steps(body: Body, names: list[str] | None) -> list[dict[str, str]]:
    return [
        {"name": name, "phase": body.steps[name].phase.value, "message": body.steps[name].message}
        for name in names or ()
    ]


def _end_execution(
    turn: Turn, phase: StoryPhase, reason: str, message: str, output: Payload | None, error: bytes | None
) -> None:
    """End the execution with a kernel outcome, for whoever waits for this run in any language."""
    status = _STATUSES.get(phase, Status.FAILED)
    if phase is StoryPhase.SUCCEEDED:
        value: Payload = b"{}" if output is None else output
        if jsontext.decode(turn.state.options).get("tells"):
            # A storage reference of this run means nothing in another one: send the value itself.
            output_text = turn.text(value)
            if may_refer(output_text):
                output_text = jsontext.encode(offloaded_data.hydrated(turn, jsontext.decode(output_text)))
            value = b'{"message":%b,"output":%b}' % (jsontext.encode(message), output_text)
        turn.end(status, Succeeded(value))
    elif status is Status.CANCELLED and phase is StoryPhase.FINISHED:
        turn.end(status, Cancelled(message))
    else:
        details = jsontext.encode({"phase": phase.value, "error": None if error is None else jsontext.decode(error)})
        turn.end(status, Failed(reason, message, False, details))
