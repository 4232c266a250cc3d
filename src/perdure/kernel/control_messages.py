"""Control messages: what people and programs send to a run, apart from results, timers and messages between runs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure.kernel import events as e
from perdure.kernel import inputs as i

if TYPE_CHECKING:
    from perdure.kernel.turn import Turn

PARENT = "parent"
"""Who cancels a child when its parent is cancelled; that is a message of the engine, not a control message."""

_KINDS: dict[type[i.Input], str] = {
    i.Signal: "signal",
    i.Steer: "steer",
    i.Cancel: "cancel",
    i.Reopen: "reopen",
    i.EffectSettle: "settle",
    i.Migrate: "migrate",
}
_IN_ROWS = (i.Signal, i.Steer, i.Cancel)
_BETWEEN_ROWS = (i.Start, i.TaskResult, i.TaskLost, i.ChildResult, i.TimerDue, i.Reopen, i.Fork, i.Disown, i.Migrate)

SENDERS_SINCE = 8
"""The record version that has `MessageSent`."""

RESULTS = (i.TaskResult, i.TaskLost, i.ChildResult)


def kind_of(input: i.Input) -> str:
    """The kind of a control message; empty for any other input."""
    if isinstance(input, i.Cancel) and input.by == PARENT and input.sender is None:
        return ""
    return _KINDS.get(type(input), "")


def is_control_message(input: i.Input) -> bool:
    return bool(kind_of(input))


def deferred_places(inputs: Sequence[i.Input]) -> frozenset[int]:
    """Places of inputs after which the run makes no move yet: a control message that waits with them comes first.

    A row begins and ends with a control message. Inputs that only inform or grant something do not interrupt it;
    results, bounds and inputs that begin a life of the run do.
    """
    places: set[int] = set()
    first = None
    for place, input in enumerate(inputs):
        if isinstance(input, _IN_ROWS):
            if first is None:
                first = place
            else:
                places.update(range(first, place))
        elif isinstance(input, _BETWEEN_ROWS):
            first = None
    return frozenset(places)


def name_sender(turn: "Turn", input: i.Input) -> None:
    """Record how a server knew who has sent the control message, before the message itself."""
    sender: i.Sender | None = getattr(input, "sender", None)
    if sender is not None and turn.record_version >= SENDERS_SINCE:
        turn.emit(e.MessageSent(sender.via, sender.issuer))
