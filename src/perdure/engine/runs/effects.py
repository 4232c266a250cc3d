"""A run's effects as they are shown, and how an operator settles those in doubt."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from perdure.engine.random_ids import new_key
from perdure.engine.runs import run_views
from perdure.engine.runs.message_sending import SendResult
from perdure.kernel import inputs as i
from perdure.kernel.errors import Conflict, PerdureError
from perdure.kernel.execution import Execution
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.kernel.tasks.effects import Effect, effect_key, has_holder

if TYPE_CHECKING:
    from perdure.engine.client import Client

COMPLETED = "completed"
UNFIT = "completed_unfit"  # performed, but its result has no JSON form
PERFORMING = "performing"
IN_DOUBT = "in_doubt"
RELEASED = "released"


class EffectNotFound(PerdureError):
    """The run has no effect of that key."""

    code = "EFFECT-NOT-FOUND"
    hint = "List the effects of the run with `perdure effects RUN`."


def state_of(execution: Execution, effect: Effect, is_owned: bool) -> str:
    """In one word. Where nobody drives the run, nobody performs anything either."""
    if effect.result is not None:
        return COMPLETED
    if effect.unfit is not None:
        return UNFIT
    if effect.released:
        return RELEASED
    is_open = not execution.state.status.is_final
    return PERFORMING if is_open and is_owned and has_holder(execution.state, effect) else IN_DOUBT


async def effects(client: "Client", run: RunId) -> list[dict[str, Any]]:
    """All of them, oldest claim first, as JSON data without what the run's input confides.

    Where nobody drives the run, with control messages that wait for it.
    """
    row, execution, _ = await client.outlook(run)
    is_owned = bool(await client.store.owned([row.partition]))
    waiting = {task.held for task in execution.state.tasks.values() if task.held}
    listed = []
    for key, effect in sorted(execution.state.effects.items(), key=lambda item: item[1].claimed_at):
        task = execution.state.tasks.get(effect.task)
        path, _, name = key.rpartition("#")
        shown: dict[str, Any] = {
            "key": key,
            "path": path,
            "name": name,
            "state": state_of(execution, effect, is_owned),
            "held": key in waiting,
            "task": effect.task,
            "delivery": effect.delivery,
            "claimed_at": effect.claimed_at,
            "ended_at": effect.ended_at,
            "takeovers": effect.takeovers,
        }
        if task is not None:
            shown["idempotency_key"] = execution.idempotency_key(task.key or task.path)
        if effect.result is not None:
            with suppress(LookupError):  # a large one that waits with its message is not among the run's values yet
                shown["result"] = jsontext.decode(await client.text(run, effect.result))
        if effect.unfit is not None:
            shown["reason"] = effect.unfit
        if effect.settled_by:
            shown["settled_by"] = effect.settled_by
        listed.append(shown)
    mask = await run_views.mask_of(client.store, execution)
    hidden: list[dict[str, Any]] = await run_views.told_aside(10 * len(listed), lambda: mask.data(listed))
    return hidden


async def settle(
    client: "Client", run: RunId, effect: str, result: bytes | None, *, key: str | None = None, by: str = ""
) -> SendResult:
    """Say what came of an effect in doubt: its result as JSON text, or None when it was not performed."""
    execution, is_owned = await _load(client, run)
    full = _find_effect(execution, effect)
    claimed = execution.state.effects[full]
    holder = (claimed.task, claimed.delivery)
    return await client.tell(run, i.EffectSettle(full, result, holder, not is_owned, key or new_key(), by))


async def _load(client: "Client", run: RunId) -> tuple[Execution, bool]:
    row = await client.find(run)
    is_owned = bool(await client.store.owned([row.partition]))  # before: who is gone then claims nothing any more
    return await run_views.load(client.store, client.languages, row), is_owned


def _find_effect(execution: Execution, effect: str) -> str:
    """The whole key; the name alone will do where only one effect has it."""
    effects = execution.state.effects
    if effect in effects:
        return effect
    named = [key for key in effects if key.rpartition("#")[2] == effect]
    if not named:
        raise EffectNotFound(f"run {execution.id} has no effect {effect!r}", run=execution.id)
    if len(named) > 1:
        which = ", ".join(repr(key) for key in named[:3])
        hint = "Give the whole key, as `perdure effects` shows it."
        raise Conflict(f"{effect!r} is the name of several effects: {which}", hint=hint, run=execution.id)
    return named[0]


def recorded_answer(execution: Execution, input: i.Input) -> i.InputAnswer | None:
    """What the run has answered to an input that it has decided, as its state says; None: it has not decided it."""
    if isinstance(input, i.Signal):
        return i.ACCEPTED
    assert isinstance(input, i.EffectClaim | i.EffectDone | i.EffectUnfit | i.EffectRelease | i.TaskReport)
    task = execution.state.tasks.get(input.task)
    if task is None or task.delivery != input.delivery:
        return i.Refused(f"delivery {input.delivery} of task {input.task} is not open (any more)")
    if isinstance(input, i.TaskReport):
        return i.ACCEPTED
    effect = execution.state.effects.get(effect_key(task.path, input.key))
    is_ours = effect is not None and (effect.task, effect.delivery) == (input.task, input.delivery)
    if isinstance(input, i.EffectClaim):
        if effect is not None and effect.is_completed:
            return i.EffectClaimAnswer(completed=True, result=effect.result, unfit=effect.unfit)
        if effect is None or effect.released or not (is_ours or task.hold_effects_in_doubt):
            return None  # nobody performs what nobody has recorded
        return i.EffectClaimAnswer(False, in_doubt=not is_ours or effect.takeovers > 0)
    if effect is None or not is_ours:
        return i.Refused(f"the effect {input.key!r} is not claimed by this delivery", conflict=True)
    return None if effect.is_open else i.ACCEPTED
