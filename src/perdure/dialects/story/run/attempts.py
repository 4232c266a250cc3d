"""Attempts of a StepRun: start, time limit, result, retry (section 6).

Retries are the language's, with their count and delay. A lost execution is the kernel's: it is delivered again
under the same attempt and costs no retry (STY-180 to STY-182).
"""

from typing import Any

from perdure.dialects.story.plan.engram_code import provider_for
from perdure.dialects.story.plan.execution_policy import ExecutionPolicy, TaskSettings
from perdure.dialects.story.plan.program import Program, Step
from perdure.dialects.story.resources.durations import write_duration
from perdure.dialects.story.run import output_cache
from perdure.dialects.story.run.engram_lookup import ResolvedEngram, find_engram
from perdure.dialects.story.run.post_execution import verified
from perdure.dialects.story.run.step_end import end_step, release
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body, StepState
from perdure.dialects.story.state.phases import BOUND_RANK, DEFAULT_REASONS, Reason, StoryPhase
from perdure.dialects.story.state.step_errors import StepError
from perdure.dialects.story.values.engram_contract import EngramFailure, classify_failure
from perdure.dialects.story.values.schema_fit import misfits
from perdure.kernel import events as e
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, Instant, Payload
from perdure.kernel.outcomes import Cancelled, Failed, Succeeded
from perdure.kernel.turn import Turn

COMPLETED = "StepRun completed successfully."
_SUCCEEDED, _IS_DONE = StoryPhase.SUCCEEDED, DEFAULT_REASONS[StoryPhase.SUCCEEDED]  # every step needs them
LONGEST_ASKED = 86_400.0  # seconds; a longer `Retry-After` is not taken seriously
RETRIED = ("retry", "rateLimited", "unknown")  # STY-125


def repeat(turn: Turn, step: Step, state: StepState) -> None:
    """Start the next attempt, with the same arguments (STY-205)."""
    assert state.run is not None and state.run.arguments is not None
    execution = _execution(turn, step)
    template, _, version = state.run.template.rpartition("@")
    provider = provider_for(execution.template, template, version)
    begin(turn, step, state.run.arguments, TaskSettings.of(execution, provider))


def launch(turn: Turn, engram: ResolvedEngram, key: str, arguments: Payload) -> None:
    """Create the StepRun and start its first attempt."""
    name, pair = engram.step.name, engram.pair
    reference, template, generation = pair.reference.key, pair.full_template_name, pair.template_generation
    turn.emit(s.StepLaunched(name, key, reference, template, generation, turn.state.issued + 1, turn.now))
    _schedule(turn, name, arguments, engram.schedule, 1)


def begin(turn: Turn, step: Step, arguments: Payload, settings: TaskSettings) -> None:
    """Start an attempt of an existing StepRun."""
    state: StepState = turn.body.steps[step.name]
    assert state.run is not None
    turn.drop_timer(state.poll)
    turn.emit(s.AttemptStarted(step.name, turn.next_number, 0, turn.now))
    _schedule(turn, step.name, arguments, settings, state.run.attempt)


def _schedule(turn: Turn, step: str, arguments: Payload, settings: TaskSettings, attempt: int) -> None:
    timeout = settings.timeout
    deadline = None if timeout is None else turn.now + timeout
    task = turn.schedule_task(
        settings.provider,
        step,
        arguments,
        attempt=attempt,
        pool=settings.pool,
        deadline=deadline,
        max_deliveries=settings.max_deliveries,
        grace=settings.grace,
        hold_effects_in_doubt=settings.holds_effects,
    )
    if deadline is not None:
        turn.set_timer(deadline, BOUND_RANK, task=task)


def expire(turn: Turn, step: Step, state: StepState) -> None:
    """Handle an attempt's timeout: ask it to stop; once it has, it counts as timed out (STY-133, STY-181)."""
    if state.task in turn.state.tasks:
        turn.emit(s.StepExpired(step.name))
        turn.cancel_task(state.task, "the attempt timed out")


def on_result(turn: Turn, name: str, end: e.TaskEnded) -> None:
    """Handle the end of a step's task."""
    body: Body = turn.body
    program: Program = turn.program
    step, state = program.step(name), body.steps[name]
    run = state.run
    assert run is not None
    if isinstance(end.outcome, Succeeded) and not run.expired:
        _succeed(turn, step, state, end.outcome)
        return
    outcome = Cancelled("the attempt timed out") if isinstance(end.outcome, Succeeded) else end.outcome
    if run.recalled:
        stopped = classify_failure(outcome, expired=False)
        end_step(turn, name, StoryPhase.CANCELED, state.message, error=stopped.error, interrupted=True)
        return
    _fail(turn, step, state, outcome)


# Success.


def _succeed(turn: Turn, step: Step, state: StepState, outcome: Succeeded) -> None:
    text = outcome.value if isinstance(outcome.value, bytes) else turn.text(outcome.value)
    engram = _engram(turn, step)
    checks = step.data.get("postExecution") is not None if engram is None else engram.checks_output
    if text.startswith(b"{") and not checks and (state.run is None or state.run.cached is None):
        release(turn, state)
        turn.emit(
            s.StepEnded(step.name, _SUCCEEDED, _IS_DONE, COMPLETED, turn.now, "landed", b"{}", None, 0, "success")
        )
        return
    value = jsontext.decode(text)
    is_object = isinstance(value, dict)
    output: dict[str, Any] = value if is_object else {} if value is None else {"value": value}  # STY-121
    problem = _output_problem(engram, output) if engram is not None else None
    if problem is not None:
        error = StepError.make("validation_error", problem, exit_code=0, exit_class="terminal", retryable=False)
        end_step(
            turn, step.name, StoryPhase.FAILED, problem, reason=Reason.OUTPUT_SCHEMA_FAILED, error=error, exit_code=0,
            exit_class="terminal",
        )  # fmt: skip
        return
    if not verified(turn, step, output):
        return
    declared = engram.pair.declared_outputs if engram is not None else None
    if declared is not None and declared != output.keys():
        missing, extra = sorted(declared - output.keys()), sorted(output.keys() - declared)
        message = f"the output lacks the declared keys {missing} and has the undeclared keys {extra}"
        turn.emit(s.Noted(step.name, "OutputKeyMismatch", message, turn.now))
    output_cache.keep(turn, step, state, output)
    if is_object:
        end_step(turn, step.name, StoryPhase.SUCCEEDED, COMPLETED, landed=True, exit_code=0, exit_class="success")
    else:
        encoded = jsontext.encode(output)
        end_step(turn, step.name, StoryPhase.SUCCEEDED, COMPLETED, output=encoded, exit_code=0, exit_class="success")


def _output_problem(engram: ResolvedEngram, output: dict[str, Any]) -> str | None:
    """Why the output does not fit the template's schema (STY-215)."""
    schema = engram.pair.output_schema
    if schema is None:
        return None
    if not output:
        return "Step output failed schema validation: the output is empty"
    problems = misfits(schema, output)
    return f"Step output failed schema validation: {problems}" if problems else None


# Failure.


def _fail(turn: Turn, step: Step, state: StepState, outcome: Failed | Cancelled) -> None:
    run = state.run
    assert run is not None
    execution = _execution(turn, step)
    timeout = execution.timeout()
    failure = classify_failure(outcome, expired=run.expired, timeout="" if timeout is None else write_duration(timeout))
    policy = execution.retry()
    if failure.exit_class in RETRIED and failure.may_retry and run.retries < policy.most:
        retry = run.retries + 1
        asked = _asked_wait(failure.error.details)
        wait = policy.wait(retry, lambda: turn.draw(f"{step.name}/{turn.body.life}/retry", retry), asked)
        _schedule_retry(turn, step, failure, retry, policy.most, wait)
        return
    end_step(
        turn,
        step.name,
        StoryPhase.TIMEOUT if failure.is_timeout else StoryPhase.FAILED,
        failure.error.message,
        error=failure.error,
        exit_code=failure.exit_code,
        exit_class=failure.exit_class,
    )


def _asked_wait(details: dict[str, Any] | None) -> Instant:
    """How long the other side asked to wait, as with `Retry-After`; 0 if it did not."""
    seconds = (details or {}).get("retry_after")
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < LONGEST_ASKED
    return int(seconds * SECOND) if is_number else 0  # type: ignore[operator]


def _schedule_retry(turn: Turn, step: Step, failure: EngramFailure, retry: int, max_retries: int, wait: int) -> None:
    """Schedule the next attempt (STY-126)."""
    due_at = turn.now + wait
    turn.drop_timer(turn.body.steps[step.name].timer)
    timer = turn.set_timer(due_at)
    message = f"Retrying in {write_duration(wait)} (attempt {retry}/{max_retries})"
    turn.emit(
        s.RetryScheduled(
            step.name,
            retry,
            timer,
            due_at,
            message,
            failure.error.message,
            failure.exit_code,
            failure.exit_class,
            turn.now,
            failure.error.encode(),
        )
    )


def _engram(turn: Turn, step: Step) -> ResolvedEngram | None:
    engram = turn.program.engrams.get(step.name) or find_engram(turn, step)
    return engram if isinstance(engram, ResolvedEngram) else None


def _execution(turn: Turn, step: Step) -> ExecutionPolicy:
    engram = _engram(turn, step)
    return ExecutionPolicy(turn.program, step, {}, {}) if engram is None else engram.execution
