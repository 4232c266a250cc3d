"""The ledger of a run: effects that its tasks claim, and how events change it.

claimed ──▶ completed            performed, with a result: never again
        ├─▶ unfit                performed, its result has no JSON form: never again, and no result either
        ├─▶ released             it failed and says so: not performed
        └─▶ in doubt             its holder is gone, nobody knows; an operator may settle it
"""

from typing import TYPE_CHECKING, Any

import msgspec

from perdure.kernel import events as e
from perdure.kernel.json_values.values import Instant, Payload

if TYPE_CHECKING:
    from perdure.kernel.state import State


PASS_A_KEY = "Let the provider's function take a context, which has a key, or pass it one as `idempotency_key`."


def passes_key(arguments: Any) -> bool:
    """Whether an author's arguments have a member, at any depth, that is called an idempotency key."""
    if isinstance(arguments, dict):
        names = (str(name).lower().replace("-", "").replace("_", "") for name in arguments)
        return any(name.startswith("idempotencykey") for name in names) or any(map(passes_key, arguments.values()))
    return isinstance(arguments, list) and any(map(passes_key, arguments))


class Effect(msgspec.Struct, gc=False, array_like=True):
    """Claimed by a delivery of a task; `result`, `unfit` or `released` says how it ended, if that is known."""

    task: int
    delivery: int
    result: Payload | None = None
    unfit: str | None = None  # why it has no result although it was performed
    released: bool = False
    left: bool = False  # by a holder that may return under the same numbers
    claimed_at: Instant = 0
    ended_at: Instant | None = None
    takeovers: int = 0  # how often a claim in doubt was taken over
    settled_by: str = ""
    path: str = ""  # of the task that claimed it
    incarnation: int = 1  # of the run at that time

    @property
    def is_completed(self) -> bool:
        return self.result is not None or self.unfit is not None

    @property
    def is_open(self) -> bool:
        """Claimed, and not ended yet."""
        return not (self.is_completed or self.released)


def effect_key(path: str, key: str) -> str:
    """Effects belong to a site of the program: attempts and deliveries of it share them, other sites do not."""
    return f"{path}#{key}"


def has_holder(state: "State", effect: Effect) -> bool:
    """Whether the delivery that claimed it is the current one of a task that an executor has."""
    task = state.tasks.get(effect.task)
    return task is not None and task.delivery == effect.delivery and not task.held and not effect.left


def _claimed(state: "State", event: e.EffectClaimed) -> None:
    before = state.effects.get(event.key)
    takeovers = 0 if before is None else before.takeovers + (not before.released)
    path = state.tasks[event.task].path
    state.effects[event.key] = Effect(
        event.task,
        event.delivery,
        claimed_at=state.at,
        takeovers=takeovers,
        path=path,
        incarnation=state.doubts.get(path, state.incarnation),
    )


def _completed(state: "State", event: e.EffectCompleted) -> None:
    effect = state.effects[event.key]
    effect.result = event.result
    effect.ended_at = state.at


def _unfit(state: "State", event: e.EffectUnfit) -> None:
    effect = state.effects[event.key]
    effect.unfit = event.reason
    effect.ended_at = state.at


def _released(state: "State", event: e.EffectReleased) -> None:
    effect = state.effects[event.key]
    effect.released = True
    effect.ended_at = state.at


def _settled(state: "State", event: e.EffectSettled) -> None:
    effect = state.effects[event.effect]
    if event.result is None:
        effect.released = True
    else:
        effect.result = event.result
    effect.ended_at = state.at
    effect.settled_by = event.by


def _task_held(state: "State", event: e.TaskHeld) -> None:
    task = state.tasks[event.task]
    task.held = event.effect
    task.laid_down = True
    if not task.pool:
        state.local_tasks -= 1
    state.held_tasks += 1
    for effect in state.effects.values():
        if effect.task == event.task and effect.is_open:
            effect.left = True


CHANGES: dict[type[e.Event], Any] = {
    e.EffectClaimed: _claimed,
    e.EffectCompleted: _completed,
    e.EffectUnfit: _unfit,
    e.EffectReleased: _released,
    e.EffectSettled: _settled,
    e.TaskHeld: _task_held,
}
