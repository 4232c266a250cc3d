"""Attempts of a StepRun: begun, bounded, judged, repeated (section 6).

A retry is the language's, with its count and its wait. A lost execution is the kernel's: it is handed out again under
the same attempt and costs no retry (STY-180 to STY-182).
"""

from typing import Any

from perdure.dialects.story.plan.engram_code import provider_for
from perdure.dialects.story.plan.execution_policy import ExecutionPolicy, grace
from perdure.dialects.story.plan.program import Program, Step
from perdure.dialects.story.resources.durations import write_duration
from perdure.dialects.story.run import output_cache
from perdure.dialects.story.run.engram_lookup import ResolvedEngram, find_engram
from perdure.dialects.story.run.post_execution import verified
from perdure.dialects.story.run.step_end import end_step
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body, StepState
from perdure.dialects.story.state.phases import BOUND_RANK, Phase, Reason
from perdure.dialects.story.state.step_errors import StepError
from perdure.dialects.story.values.engram_contract import EngramFailure, classify_failure
from perdure.dialects.story.values.schema_fit import misfits
from perdure.kernel import events as e
from perdure.kernel import jsontext
from perdure.kernel.outcomes import Cancelled, Failed, Succeeded
from perdure.kernel.turn import Turn
from perdure.kernel.values import Payload

COMPLETED = "StepRun completed successfully."
RETRIED = ("retry", "rateLimited", "unknown")  # STY-125


def repeat(turn: Turn, step: Step, state: StepState) -> None:
    """The next attempt, with the same arguments (STY-205)."""
    assert state.run is not None and state.run.arguments is not None
    execution = _execution(turn, step)
    template, _, version = state.run.template.rpartition("@")
    provider = provider_for(execution.template, template, version)
    begin(turn, step, state.run.arguments, execution, provider)


def launch(turn: Turn, found: ResolvedEngram, key: str, arguments: Payload) -> None:
    """The StepRun, and its first attempt."""
    name, pair = found.step.name, found.pair
    reference, template, generation = found.reference.key, pair.full_template_name, pair.template_generation
    turn.emit(s.StepLaunched(name, key, reference, template, generation, turn.next_number, turn.now))
    _schedule(turn, name, arguments, found.execution, pair.provider, 1)


def begin(turn: Turn, step: Step, arguments: Payload, execution: ExecutionPolicy, provider: str) -> None:
    """An attempt of a StepRun that is there already."""
    state: StepState = turn.body.steps[step.name]
    assert state.run is not None
    turn.drop_timer(state.poll)
    turn.emit(s.AttemptStarted(step.name, turn.next_number, 0, turn.now))
    _schedule(turn, step.name, arguments, execution, provider, state.run.attempt)


def _schedule(
    turn: Turn, step: str, arguments: Payload, execution: ExecutionPolicy, provider: str, attempt: int
) -> None:
    program: Program = turn.program
    timeout = execution.timeout()
    due = None if timeout is None else turn.now + timeout
    most = program.settings.max_restarts
    task = turn.schedule_task(
        provider,
        step,
        arguments,
        attempt=attempt,
        deadline=due,
        max_deliveries=most + 1 if most > 0 else 0,
        grace=grace(program),
        hold_effects_in_doubt=execution.holds_effects,
    )
    if due is not None:
        turn.set_timer(due, BOUND_RANK, task=task)


def expire(turn: Turn, step: Step, state: StepState) -> None:
    """An attempt's time is up: it is asked to stop, and counts as timed out once it has (STY-133, STY-181)."""
    if state.task in turn.state.tasks:
        turn.emit(s.StepExpired(step.name))
        turn.cancel_task(state.task, "its time is up")


def on_result(turn: Turn, name: str, ended: e.TaskEnded) -> None:
    """A task of the step has ended."""
    body: Body = turn.body
    program: Program = turn.program
    step, state = program.step(name), body.steps[name]
    run = state.run
    assert run is not None
    if isinstance(ended.outcome, Succeeded) and not run.expired:
        _succeed(turn, step, state, ended.outcome)
        return
    outcome = Cancelled("its time was up") if isinstance(ended.outcome, Succeeded) else ended.outcome
    if run.recalled:
        stopped = classify_failure(outcome, expired=False)
        end_step(turn, name, Phase.CANCELED, state.message, error=stopped.error, interrupted=True)
        return
    _fail(turn, step, state, outcome)


# It ended well.


def _succeed(turn: Turn, step: Step, state: StepState, outcome: Succeeded) -> None:
    text = turn.text(outcome.value)
    found = _engram(turn, step)
    if text.startswith(b"{") and not _is_looked_into(step, state, found):
        end_step(turn, step.name, Phase.SUCCEEDED, COMPLETED, landed=True, exit_code=0, exit_class="success")
        return
    value = jsontext.decode(text)
    is_object = isinstance(value, dict)
    output: dict[str, Any] = value if is_object else {} if value is None else {"value": value}  # STY-121
    problem = _output_problem(found, output) if found is not None else None
    if problem is not None:
        error = StepError.make("validation_error", problem, exit_code=0, exit_class="terminal", retryable=False)
        end_step(
            turn, step.name, Phase.FAILED, problem, reason=Reason.OUTPUT_SCHEMA_FAILED, error=error, exit_code=0,
            exit_class="terminal",
        )  # fmt: skip
        return
    if not verified(turn, step, output):
        return
    declared = found.pair.declared_outputs if found is not None else None
    if declared is not None and declared != output.keys():
        missing, extra = sorted(declared - output.keys()), sorted(output.keys() - declared)
        message = f"the output misses {missing} and has {extra} besides what is declared"
        turn.emit(s.Noted(step.name, "OutputKeyMismatch", message, turn.now))
    output_cache.keep(turn, step, state, output)
    if is_object:
        end_step(turn, step.name, Phase.SUCCEEDED, COMPLETED, landed=True, exit_code=0, exit_class="success")
    else:
        given = jsontext.encode(output)
        end_step(turn, step.name, Phase.SUCCEEDED, COMPLETED, output=given, exit_code=0, exit_class="success")


def _is_looked_into(step: Step, state: StepState, found: ResolvedEngram | None) -> bool:
    """Whether anything is asked of the output before the step may end with it."""
    if found is not None and (found.pair.output_schema is not None or found.pair.declared_outputs is not None):
        return True
    is_kept = state.run is not None and state.run.cached is not None
    return is_kept or step.data.get("postExecution") is not None


def _output_problem(found: ResolvedEngram, output: dict[str, Any]) -> str | None:
    """STY-215."""
    written = found.pair.output_schema
    if written is None:
        return None
    if not output:
        return "Step output failed schema validation: the output is empty"
    problems = misfits(written, output)
    return f"Step output failed schema validation: {problems}" if problems else None


# It did not.


def _fail(turn: Turn, step: Step, state: StepState, outcome: Failed | Cancelled) -> None:
    run = state.run
    assert run is not None
    execution = _execution(turn, step)
    timeout = execution.timeout()
    found = classify_failure(outcome, expired=run.expired, timeout="" if timeout is None else write_duration(timeout))
    policy = execution.retry()
    if found.exit_class in RETRIED and found.may_retry and run.retries < policy.most:
        retry = run.retries + 1
        wait = policy.wait(retry, lambda: turn.draw(f"{step.name}/{turn.body.life}/retry", retry))
        _schedule_retry(turn, step, found, retry, policy.most, wait)
        return
    end_step(
        turn,
        step.name,
        Phase.TIMEOUT if found.is_timeout else Phase.FAILED,
        found.error.message,
        error=found.error,
        exit_code=found.exit_code,
        exit_class=found.exit_class,
    )


def _schedule_retry(turn: Turn, step: Step, found: EngramFailure, retry: int, most: int, wait: int) -> None:
    """STY-126."""
    due = turn.now + wait
    turn.drop_timer(turn.body.steps[step.name].timer)
    timer = turn.set_timer(due)
    message = f"Retrying in {write_duration(wait)} (attempt {retry}/{most})"
    turn.emit(
        s.RetryScheduled(
            step.name,
            retry,
            timer,
            due,
            message,
            found.error.message,
            found.exit_code,
            found.exit_class,
            turn.now,
            found.error.encode(),
        )
    )


def _engram(turn: Turn, step: Step) -> ResolvedEngram | None:
    found = find_engram(turn, step)
    return found if isinstance(found, ResolvedEngram) else None


def _execution(turn: Turn, step: Step) -> ExecutionPolicy:
    found = _engram(turn, step)
    return ExecutionPolicy(turn.program, step, {}, {}) if found is None else found.execution
