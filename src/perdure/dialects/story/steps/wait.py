"""`wait`: Paused until its condition holds (STY-096 to STY-100).

A condition that reads steps is looked at whenever one of them changed; one that asks for time or chance by the clock.
Between those moments it cannot change, so nobody looks.
"""

from perdure.dialects.story.document.context import StoryContext
from perdure.dialects.story.document.cursor import INVALID, Cursor
from perdure.dialects.story.document.shapes import shown
from perdure.dialects.story.document.templates import check_condition
from perdure.dialects.story.plan.program import Program, Step
from perdure.dialects.story.resources.durations import SHORTEST_POLL, BadDuration, read_positive
from perdure.dialects.story.run.post_execution import succeed
from perdure.dialects.story.run.step_end import end_step, error_text, skip
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import StepState
from perdure.dialects.story.state.phases import Phase, Reason
from perdure.dialects.story.steps.step_kind import StepKind
from perdure.dialects.story.values import materialize
from perdure.dialects.story.values.materialize import HelperNeeded
from perdure.dialects.story.values.template_scope import Scope
from perdure.expressions.gotemplate import (
    DETERMINISTIC,
    RUNTIME,
    ExpressionError,
    References,
    SyntaxFault,
    compile_template,
    is_template,
)
from perdure.kernel.inputs import WORD_RANK
from perdure.kernel.turn import Turn
from perdure.kernel.values import SECOND, Instant, RunId

UNTIL = "wait"

# What `wait` and `gate` share: a deadline, and what it means when it passes (STY-096, 098, 104).


def check_timeout(given: Cursor, name: str, kind: str) -> None:
    for word in ("timeout", "pollInterval"):
        span = given.at(word)
        if span.value in (None, ""):
            continue
        try:
            length = read_positive(span.value)
        except BadDuration as refusal:
            span.problem(INVALID, f"step '{name}' has invalid {kind} {word}: {refusal}")
            continue
        if word == "pollInterval" and length < SHORTEST_POLL:
            span.problem(INVALID, f"step '{name}' has {kind} pollInterval shorter than 10ms")
    policy = given.at("onTimeout")
    choice = policy.value.strip().lower() if isinstance(policy.value, str) else policy.value
    if choice not in (None, "", "fail", "skip"):
        unsupported = f"unsupported value {shown(policy.value)} (expected fail or skip)"
        policy.problem(INVALID, f"step '{name}' has invalid {kind} onTimeout: {unsupported}")


def timeout_of(step: Step) -> Instant | None:
    try:
        return read_positive(step.given.get("timeout"))
    except BadDuration:
        return None


def time_out(turn: Turn, step: Step) -> None:
    policy = step.given.get("onTimeout")
    if isinstance(policy, str) and policy.strip().lower() == "skip":
        skip(turn, [step.name], f"{step.kind} step timed out and was skipped.")
    else:
        end_step(turn, step.name, Phase.TIMEOUT, f"{step.kind} step timed out.")


CADENCE: Instant = 2 * SECOND  # of looks by the clock, where the author says nothing


class Wait(StepKind):
    members = ("until", "timeout", "pollInterval", "onTimeout")
    purposes = (UNTIL,)
    is_batch_only = True

    def check(self, step: Cursor, name: str, block: str, story: StoryContext) -> None:
        given = step.at("with")
        if given.value is None:
            step.problem(INVALID, f"step '{name}' of type 'wait' requires a 'with' block")
            return
        if not isinstance(given.value, dict):
            return
        given.warn_unread(self.members)
        until = given.at("until")
        if until.value is None or (isinstance(until.value, str) and not until.value.strip()):
            given.problem(INVALID, f"step '{name}' of type 'wait' requires 'with.until' to be set")
        elif not isinstance(until.value, str):
            until.problem(INVALID, f"must be a text or a template, not {shown(until.value)}")
        else:
            check_condition(until)
        check_timeout(given, name, "wait")

    def awaited(self, run: RunId, step: str) -> str:
        return f"the condition of wait {step!r}"

    def start(self, turn: Turn, step: Step) -> None:
        program: Program = turn.program
        until = _until(step)
        reads_steps = reads_clock = False
        if is_template(until):
            try:
                references = compile_template(until, program.environment).references
            except SyntaxFault as problem:
                end_step(turn, step.name, Phase.FAILED, error_text(problem), reason=Reason.EXPRESSION_FAILED)
                return
            reads_steps = bool(references.steps) or references.reads_any_step
            reads_clock = _asks_the_world(references)
        wanted: HelperNeeded | None = None
        try:
            if self._holds(turn, step):
                succeed(turn, step, SATISFIED)
                return
        except HelperNeeded as asked:
            wanted = asked
        timeout = timeout_of(step)
        due = None if timeout is None else turn.now + timeout
        timer = 0 if due is None else turn.set_timer(due, WORD_RANK)
        poll = turn.set_timer(turn.now + _interval(step)) if reads_clock else 0
        turn.emit(s.StepStarted(step.name, Phase.PAUSED, WAITING, turn.now, timer, due, poll, reads_steps=reads_steps))
        if wanted is not None:  # a helper looks into offloaded data; the wait's own clock runs meanwhile (STY-100)
            materialize.ask(turn, wanted)

    def resume(self, turn: Turn, step: Step, state: StepState) -> None:
        """Something changed: look again. A poll that has just rung is set anew."""
        rang = not state.poll and _reads_clock(turn.program, step)
        try:
            if self._holds(turn, step, anew=rang):
                succeed(turn, step, SATISFIED)
                return
        except HelperNeeded as asked:
            materialize.ask(turn, asked)
        turn.emit(s.WaitChecked(step.name, turn.set_timer(turn.now + _interval(step)) if rang else 0))

    def on_timer(self, turn: Turn, step: Step, state: StepState) -> None:
        """A condition that is true at the deadline wins (STY-098); one that would take longer to look at does not."""
        try:
            if self._holds(turn, step):
                succeed(turn, step, SATISFIED)
                return
        except HelperNeeded:
            pass
        time_out(turn, step)

    def _holds(self, turn: Turn, step: Step, *, anew: bool = False) -> bool:
        """False, missing data and errors all mean: not yet (STY-097). Raises `HelperNeeded`."""
        try:
            return Scope(turn, step).holds(_until(step), UNTIL, anew=anew, may_differ=False)
        except ExpressionError:
            return False


SATISFIED = "Wait condition satisfied."
WAITING = "Waiting for condition."


def _until(step: Step) -> str:
    found = step.given.get("until")
    return found if isinstance(found, str) else str(found).lower() if isinstance(found, bool) else ""


def _reads_clock(program: Program, step: Step) -> bool:
    until = _until(step)
    if not is_template(until):
        return False
    return _asks_the_world(compile_template(until, program.environment).references)


def _asks_the_world(references: References) -> bool:
    return bool(references.functions & (RUNTIME.functions.keys() - DETERMINISTIC.functions.keys()))


def _interval(step: Step) -> Instant:
    try:
        return max(SHORTEST_POLL, read_positive(step.given.get("pollInterval")))
    except BadDuration:
        return CADENCE
