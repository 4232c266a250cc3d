"""Whether a message about an effect still counts: who may perform it, and who may report its result (invariant 14)."""

from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Code, Failed
from perdure.kernel.state import OpenTask, State
from perdure.kernel.tasks.effects import effect_key, has_holder
from perdure.kernel.turn import Turn

HELD_SINCE = 3  # the record version in which a task can be held; before, it failed instead


def claim(turn: Turn, input: i.EffectClaim, task: OpenTask) -> None:
    key = effect_key(task.path, input.key)
    effect = turn.state.effects.get(key)
    if effect is None or effect.released:
        turn.emit(e.EffectClaimed(key, input.task, input.delivery))
        turn.answer = i.EffectClaimAnswer(completed=False)
    elif effect.is_completed:
        turn.answer = i.EffectClaimAnswer(completed=True, result=effect.result, unfit=effect.unfit)
    elif (effect.task, effect.delivery) == (input.task, input.delivery) and not effect.left:
        # Repeated, because the answer was lost: that is no doubt, and what was in doubt still is.
        turn.answer = i.EffectClaimAnswer(completed=False, in_doubt=effect.takeovers > 0)
    else:
        # The earlier holder is gone without a report: the effect may or may not have happened.
        # If the step wants such a task held, the claim stays unchanged for an operator.
        if not task.hold_effects_in_doubt:
            turn.emit(e.EffectClaimed(key, input.task, input.delivery))
        turn.answer = i.EffectClaimAnswer(completed=False, in_doubt=True)


Ending = i.EffectDone | i.EffectUnfit | i.EffectRelease


def end(turn: Turn, input: Ending, task: OpenTask) -> None:
    """The result of an effect, reported by the delivery that claimed it; a stale one records nothing."""
    key = effect_key(task.path, input.key)
    effect = turn.state.effects.get(key)
    if effect is None or (effect.task, effect.delivery) != (input.task, input.delivery):
        turn.refuse(f"the effect {input.key!r} is not claimed by this delivery", conflict=True)
    elif not effect.is_open:
        return  # reported before
    elif isinstance(input, i.EffectDone):
        turn.emit(e.EffectCompleted(key, input.result))
    elif isinstance(input, i.EffectUnfit):
        turn.emit(e.EffectUnfit(key, input.reason))
    else:
        turn.emit(e.EffectReleased(key))


def effect_to_hold(turn: Turn, task: OpenTask, failure: Failed) -> str:
    """The effect in doubt for which the task has to wait instead of ending; empty when it has ended."""
    if failure.code != Code.EFFECT_IN_DOUBT or failure.details is None:
        return ""
    if not task.hold_effects_in_doubt or task.cancelling or turn.record_version < HELD_SINCE:
        return ""
    details = jsontext.decode(failure.details)
    key = effect_key(task.path, str(details.get("effect"))) if isinstance(details, dict) else ""
    effect = turn.state.effects.get(key)
    return key if effect is not None and effect.is_open else ""


def settle(turn: Turn, input: i.EffectSettle) -> None:
    """An operator decides an effect in doubt; tasks that are held for it continue."""
    result = None if input.result is None else turn.keep(input.result)
    turn.emit(e.EffectSettled(input.effect, result, input.key, input.by))
    tasks = [number for number, task in turn.state.tasks.items() if task.held == input.effect and not task.cancelling]
    if tasks:
        turn.emit(e.TasksTakenUp(tasks))


def why_not_settled(state: State, input: i.EffectSettle) -> str | None:
    """Why an effect cannot be settled in this way; None when it can."""
    effect = state.effects.get(input.effect)
    if effect is None:
        return f"it has no effect {input.effect!r}"
    if effect.is_completed:
        return f"the effect {input.effect!r} is completed; only one in doubt can be settled"
    if effect.released:
        return f"the effect {input.effect!r} was not performed and is not in doubt; there is nothing to settle"
    if (effect.task, effect.delivery) != input.holder:
        return f"the effect {input.effect!r} was claimed again meanwhile; look at it and decide again"
    if has_holder(state, effect) and not input.is_holder_gone:
        return f"the effect {input.effect!r} is being performed now; it can be settled once its task is gone"
    return None
