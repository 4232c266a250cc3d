"""`wait`: Paused until its condition holds (STY-096 to STY-100).

A condition that reads steps is checked whenever one of them changes; one that uses the clock or random values is
checked at intervals. Otherwise it cannot change, so it is not checked.
"""

from itertools import product
from typing import TYPE_CHECKING

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
from perdure.dialects.story.state.phases import Reason, StoryPhase
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
from perdure.kernel.graphs.graph import Role
from perdure.kernel.inputs import CONTROL_WAIT_RANK
from perdure.kernel.json_values.values import SECOND, Instant, RunId
from perdure.kernel.lazy_regex import lazy_regex
from perdure.kernel.turn import Turn

if TYPE_CHECKING:
    from perdure.dialects.story.views.net import StoryNet

UNTIL = "wait"

# Shared by `wait` and `gate`: the deadline and what happens when it passes (STY-096, 098, 104).


def check_timeout(with_block: Cursor, name: str, kind: str) -> None:
    for member in ("timeout", "pollInterval"):
        duration = with_block.at(member)
        if duration.value in (None, ""):
            continue
        try:
            instant = read_positive(duration.value)
        except BadDuration as refusal:
            duration.problem(INVALID, f"step '{name}' has invalid {kind} {member}: {refusal}")
            continue
        if member == "pollInterval" and instant < SHORTEST_POLL:
            duration.problem(INVALID, f"step '{name}' has {kind} pollInterval shorter than 10ms")
    policy = with_block.at("onTimeout")
    choice = policy.value.strip().lower() if isinstance(policy.value, str) else policy.value
    if choice not in (None, "", "fail", "skip"):
        unsupported = f"unsupported value {shown(policy.value)} (expected fail or skip)"
        policy.problem(INVALID, f"step '{name}' has invalid {kind} onTimeout: {unsupported}")


def timeout_of(step: Step) -> Instant | None:
    try:
        return read_positive(step.with_block.get("timeout"))
    except BadDuration:
        return None


def time_out(turn: Turn, step: Step) -> None:
    policy = step.with_block.get("onTimeout")
    if isinstance(policy, str) and policy.strip().lower() == "skip":
        skip(turn, [step.name], f"{step.kind} step timed out and was skipped.")
    else:
        end_step(turn, step.name, StoryPhase.TIMEOUT, f"{step.kind} step timed out.")


DEFAULT_INTERVAL: Instant = 2 * SECOND  # between checks, unless the author sets one


class WaitStep(StepKind):
    role = Role.WAIT
    members = ("until", "timeout", "pollInterval", "onTimeout")
    purposes = (UNTIL,)
    is_batch_only = True

    def check(self, step: Cursor, name: str, block: str, story: StoryContext) -> None:
        with_block = step.at("with")
        if with_block.value is None:
            step.problem(INVALID, f"step '{name}' of type 'wait' requires a 'with' block")
            return
        if not isinstance(with_block.value, dict):
            return
        with_block.warn_unread(self.members)
        until = with_block.at("until")
        if until.value is None or (isinstance(until.value, str) and not until.value.strip()):
            with_block.problem(INVALID, f"step '{name}' of type 'wait' requires 'with.until' to be set")
        elif not isinstance(until.value, str):
            until.problem(INVALID, f"must be a string or a template, not {shown(until.value)}")
        else:
            check_condition(until)
        check_timeout(with_block, name, "wait")

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
                end_step(turn, step.name, StoryPhase.FAILED, error_text(problem), reason=Reason.EXPRESSION_FAILED)
                return
            reads_steps = bool(references.steps) or references.reads_any_step
            reads_clock = _is_nondeterministic(references)
        request: HelperNeeded | None = None
        try:
            if self._holds(turn, step):
                succeed(turn, step, SATISFIED)
                return
        except HelperNeeded as helper:
            request = helper
        timeout = timeout_of(step)
        deadline = None if timeout is None else turn.now + timeout
        timer = 0 if deadline is None else turn.set_timer(deadline, CONTROL_WAIT_RANK)
        poll = turn.set_timer(turn.now + _interval(step)) if reads_clock else 0
        turn.emit(
            s.StepStarted(
                step.name, StoryPhase.PAUSED, WAITING, turn.now, timer, deadline, poll, reads_steps=reads_steps
            )
        )
        if request is not None:  # a helper reads offloaded data; the wait's timeout runs meanwhile (STY-100)
            materialize.ask(turn, request)

    def resume(self, turn: Turn, step: Step, state: StepState) -> None:
        """Check the condition again after something changed. A poll timer that has fired is set again."""
        poll_fired = not state.poll and _reads_clock(turn.program, step)
        try:
            if self._holds(turn, step, anew=poll_fired):
                succeed(turn, step, SATISFIED)
                return
        except HelperNeeded as helper:
            materialize.ask(turn, helper)
        turn.emit(s.WaitChecked(step.name, turn.set_timer(turn.now + _interval(step)) if poll_fired else 0))

    def on_timer(self, turn: Turn, step: Step, state: StepState) -> None:
        """Handle the deadline: a condition that holds then wins (STY-098), unless checking it needs a helper."""
        try:
            if self._holds(turn, step):
                succeed(turn, step, SATISFIED)
                return
        except HelperNeeded:
            pass
        time_out(turn, step)

    def _holds(self, turn: Turn, step: Step, *, anew: bool = False) -> bool:
        """Whether the condition holds. Missing data and errors mean: not yet (STY-097). Raises `HelperNeeded`."""
        try:
            return Scope(turn, step).holds(_until(step), UNTIL, anew=anew, may_differ=False)
        except ExpressionError:
            return False

    def own_limit(self, step: Step) -> Instant | None:
        return timeout_of(step)

    def build_net(self, net: "StoryNet", step: Step, at: int) -> None:
        """Its condition changes with steps that are still to end, or with the clock; otherwise never."""
        until = _until(step)
        truth = net.truth(until)
        if is_template(until) and truth is None:
            references = net.reads(until)
            unread = references.reads_any_step or not references.steps
            later = {name for name in references.steps if net.is_after(name, step.name)}
            if not unread and later == references.steps and references.roots == {"steps"}:
                truth = _before_they_start(net, until, references)
        if truth is True:
            net.succeed(step, at, "is satisfied")
            return
        senders = _senders(net, step) if truth is None else None
        if truth is None:
            for place in [None] if senders is None else [net.ended[name] for name in senders]:
                net.succeed(step, at, "is satisfied", waits=True, reads=() if place is None else (place,))
        if timeout_of(step) is not None:
            add_timeout(net, step, at)
            return
        hint = "Set `with.timeout`, or a time limit of the Story (`policy.timeouts.story`)."
        if truth is None and self._has_sender(net, step, until):
            message = f"wait '{step.name}' has no time limit, should its condition never hold"
            net.wait_for_ever(step, at, "unbounded-wait", message, hint)
            return
        message = f"wait '{step.name}' waits for ever: nothing that happens later changes its condition"
        if senders and not any(net.is_before(name, step.name) for name in senders):
            names = " and ".join(f"'{name}'" for name in sorted(senders))
            message = f"wait '{step.name}' waits for ever: {names} cannot end before it"
        elif truth is None:
            message = f"wait '{step.name}' waits for ever if its condition does not hold at once: nothing changes it"
        net.wait_for_ever(step, at, "deadlock", message, hint)

    def _has_sender(self, net: "StoryNet", step: Step, until: str) -> bool:
        """Whether a step that may still be at work, or the clock, can change the condition."""
        references = net.reads(until)
        if references.reads_any_step or _is_nondeterministic(references):
            return True
        own = step.name
        if net.endable is None:
            net.endable = _endable(net)
        at_work = [name for name in references.steps if not net.is_before(name, own) and not net.is_after(name, own)]
        return any(name in net.endable or name not in net.ended for name in at_work)


def _before_they_start(net: "StoryNet", until: str, references: References) -> bool | str | None:
    """What a condition is as long as the steps that it reads have not started: a failure may have skipped them."""
    if len(references.steps) > MOST_SENDERS:
        return None
    truths = set()
    for states in product(({}, {"phase": StoryPhase.SKIPPED.value}), repeat=len(references.steps)):
        data = {name: state for name, state in zip(references.steps, states, strict=True) if state}
        truths.add(net.truth(until, {"steps": data}))
    return truths.pop() if len(truths) == 1 else None


def _senders(net: "StoryNet", step: Step) -> frozenset[str] | None:
    """Steps of which one must have ended before the condition can hold; None: that cannot be told.

    It reads nothing but their phases and outputs, and is false in every state that they have before they end.
    """
    until = _until(step)
    references = net.reads(until)
    reads = _PHASE_OR_OUTPUT.findall(until)
    names = sorted(set(reads))
    if references.roots != {"steps"} or references.reads_any_step or _is_nondeterministic(references):
        return None
    if len(reads) != len(_STEPS.findall(until)) or not 1 <= len(names) <= MOST_SENDERS:
        return None
    if not net.ended.keys() >= references.steps:
        return None
    at_work: list[dict[str, str] | None] = [{}]
    at_work += [{"phase": phase.value} for phase in StoryPhase if not phase.is_terminal]
    unstarted: list[dict[str, str] | None] = [None]
    states = [unstarted if net.is_after(name, step.name) else at_work for name in names]
    for combination in product(*states):
        known = zip(names, combination, strict=True)
        data = {"steps": {name: state for name, state in known if state is not None}}
        if net.truth(until, data) in (True, None):
            return None
    return frozenset(references.steps) if net.truth(until, {"steps": {}}) not in (True, None) else None


def _endable(net: "StoryNet") -> set[str]:
    """Steps that can end: not waits that, directly or through each other, wait for nothing but themselves."""
    waits = {
        name: _senders(net, step)
        for name, step in net.program.steps.items()
        if step.kind == "wait" and timeout_of(step) is None and is_template(_until(step))
    }
    endable: set[str] = set()
    is_new = True
    while is_new:
        is_new = False
        for name in net.ended.keys() - endable:
            senders = waits.get(name)
            needed = endable.issuperset(net.program.plan.waits.get(name, ()))
            if needed and (senders is None or not endable.isdisjoint(senders)):
                endable.add(name)
                is_new = True
    return endable


def add_timeout(net: "StoryNet", step: Step, at: int) -> None:
    policy = step.with_block.get("onTimeout")
    if isinstance(policy, str) and policy.strip().lower() == "skip":
        net.succeed(step, at, "times out", waits=True)
    else:
        net.fail(step, at, "times out", waits=True)


MOST_SENDERS = 2  # whose states are tried in every combination
_PHASE_OR_OUTPUT = lazy_regex(r"\bsteps\.(\w+)\.(?:phase|output)\b")
_STEPS = lazy_regex(r"\bsteps\b")

SATISFIED = "Wait condition satisfied."
WAITING = "Waiting for condition."


def _until(step: Step) -> str:
    until = step.with_block.get("until")
    return until if isinstance(until, str) else str(until).lower() if isinstance(until, bool) else ""


def _reads_clock(program: Program, step: Step) -> bool:
    until = _until(step)
    if not is_template(until):
        return False
    return _is_nondeterministic(compile_template(until, program.environment).references)


def _is_nondeterministic(references: References) -> bool:
    return bool(references.functions & (RUNTIME.functions.keys() - DETERMINISTIC.functions.keys()))


def _interval(step: Step) -> Instant:
    try:
        return max(SHORTEST_POLL, read_positive(step.with_block.get("pollInterval")))
    except BadDuration:
        return DEFAULT_INTERVAL
