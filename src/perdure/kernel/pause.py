"""Pausing a run: what arrives is recorded, no move is made, and nothing is handed out until somebody lets it go on.

Bounds go on and may fire; waits for a control message do not run out. A task that is scheduled or delivered again
meanwhile is kept back. A cancel ends the pause. A language that pauses by rules of its own (`Dialect.pauses_itself`)
makes and holds its moves itself; the kernel then only notes the pause.
"""

from typing import TYPE_CHECKING, Any

from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.json_values import jsontext

if TYPE_CHECKING:
    from perdure.kernel.execution import Execution
    from perdure.kernel.turn import Turn

PAUSE, RESUME = "pause", "resume"
"""Verbs of `Steer`."""

PAUSES_SINCE = 4
"""The record version that has `RunPaused`."""


def is_pause(input: i.Input) -> bool:
    """Whether a control message pauses a run, or lets it go on."""
    return isinstance(input, i.Steer) and input.verb in (PAUSE, RESUME)


def why_refused(execution: "Execution", input: i.Steer) -> str | None:
    """Asked of a run that is open."""
    if input.verb == PAUSE:
        return "the run is paused already" if execution.state.pause is not None else None
    return "the run is not paused" if execution.state.pause is None else None


def record(turn: "Turn", input: i.Steer) -> None:
    """The message itself is recorded. Only a language that pauses itself hears of it."""
    is_kept_by_language = turn.execution.dialect.pauses_itself
    if input.verb == PAUSE:
        turn.emit(e.RunPaused(_reason(turn, input), input.by, holds=not is_kept_by_language))
    else:
        _unpause(turn, _reason(turn, input), input.by)
    if not is_kept_by_language:
        turn.input = i.Wake()  # the language has nothing to react to; moves are made once it is not paused


def end_for_cancel(turn: "Turn", by: str) -> None:
    _unpause(turn, "cancelled", by)


def _unpause(turn: "Turn", reason: str, by: str) -> None:
    state = turn.state
    if state.pause is None:  # older versions did not record that a Playbook is paused
        return
    was_held = state.is_held
    turn.emit(e.RunUnpaused(reason, by))
    kept_back = [number for number, task in state.tasks.items() if task.is_kept_back]
    if was_held and kept_back:
        turn.emit(e.TasksTakenUp(kept_back))


def _reason(turn: "Turn", input: i.Steer) -> str:
    document: Any = jsontext.decode(turn.text(input.body))
    reason = document.get("reason", "") if isinstance(document, dict) else ""
    return reason if isinstance(reason, str) else ""
