"""Who is held responsible for the loss of a process (invariant 27).

A process that dies takes everything down that was at work in it. One of its tasks may have been the cause, the others
are innocent, and nobody has seen which. So a loss makes suspects first; only what was lost while nothing else worked
beside it is *charged*, and only charges count towards a task's cap.

    nothing known ──lost──▶ suspect ──lost while begun──▶ begun alone ──lost──▶ charged, begun alone again
                               ▲                              │
                               └──── outlived its time ◀──────┘
"""

from enum import IntEnum
from typing import Protocol

from perdure.kernel.values import SECOND, Instant

ALONE_FROM = 2
"""How suspicious a task is that must not work beside others."""

FIRST_TIME_ALONE: Instant = 60 * SECOND
_LONGEST_DOUBLING = 20  # about two years: longer than any task waits

_PACED_FROM = 10  # losses: before, a cap has ended most tasks
_LONGEST_PACE: Instant = 60 * SECOND


class StartPlace(IntEnum):
    """Where a delivery was begun, as far as it is recorded. Only the begin of a suspect is."""

    UNKNOWN = 0  # it may have begun; a suspect has not
    BESIDE_OTHERS = 1
    ALONE = 2  # in the engine's process, while no other function works there
    APART = 3  # in a process of its own
    LET_GO = 4  # its process gave it up in order: whatever comes next is not its doing


class LossKind(IntEnum):
    """What is known of how a delivery was lost."""

    PROCESS = 0  # its process is gone; where it had begun stands in the log
    ONLY = 1  # the same, and no other task was open in that process
    BESIDE_OTHERS = 2  # its worker is gone, and had begun it
    ALONE = 3  # its worker, or the process of its own, is gone, and had nothing else in hand
    STOPPED = 4  # not its doing: an orderly stop, a lease that ended, a machine that restarted
    UNSEEN = 5  # it was alone, and its machine was not seen since: that may have restarted


class Suspect(Protocol):
    suspicion: int
    place: int
    losses: int


_TOLD = {
    LossKind.BESIDE_OTHERS: StartPlace.BESIDE_OTHERS,
    LossKind.ALONE: StartPlace.ALONE,
    LossKind.UNSEEN: StartPlace.ALONE,
}


def attribute(task: Suspect, loss: int) -> tuple[int, bool]:
    """How suspicious the task is after this loss, and whether it is charged with it."""
    place = _TOLD.get(LossKind(loss), task.place)
    if loss == LossKind.STOPPED or place in (StartPlace.APART, StartPlace.LET_GO):
        return task.suspicion, False
    if task.suspicion and place == StartPlace.UNKNOWN:
        return task.suspicion, False  # the begin of a suspect is recorded, and this one's is not
    is_let_pass = loss == LossKind.UNSEEN and task.losses <= ALONE_FROM  # once: whoever kills comes back
    return task.suspicion + 1, (place == StartPlace.ALONE and not is_let_pass) or loss == LossKind.ONLY


def loss_of_lease(place: int, loss_on_machine: LossKind) -> LossKind:
    """What the row of a lease that ended without a result says: where its task was begun, and on which machine."""
    match place:
        case StartPlace.ALONE:
            return LossKind.ALONE if loss_on_machine is LossKind.PROCESS else loss_on_machine
        case StartPlace.BESIDE_OTHERS:
            return LossKind.BESIDE_OTHERS
        case StartPlace.UNKNOWN:
            return LossKind.PROCESS
        case _:
            return LossKind.STOPPED


def time_alone(losses: int) -> Instant:
    """For how long a task that was lost so often keeps others from beginning beside it."""
    return FIRST_TIME_ALONE << min(max(losses - ALONE_FROM, 0), _LONGEST_DOUBLING)


def pace(losses: int) -> Instant:
    """How long a task without a cap that was lost so often, in a process of its own, waits before it is lost again."""
    return 0 if losses < _PACED_FROM else min(SECOND << min(losses - _PACED_FROM, _LONGEST_DOUBLING), _LONGEST_PACE)
