"""Attribution of crashes: which task is charged with the loss of a process (invariant 27).

When a process dies, all tasks that ran in it are lost. One of them may have been the cause, and nobody knows which one.
So a loss makes all of them suspects first; only a task that was lost while nothing else ran beside it is *charged*, and
only charges count towards a task's cap.

    nothing known ──lost──▶ suspect ──lost after its start──▶ started alone ──lost──▶ charged, started alone again
                               ▲                                 │
                               └──────── survived its time ◀────┘
"""

from enum import IntEnum
from typing import Protocol

from perdure.kernel.json_values.values import SECOND, Instant

ALONE_FROM = 2
"""From this degree of suspicion on a task must not run beside others."""

FIRST_TIME_ALONE: Instant = 60 * SECOND
_LONGEST_DOUBLING = 20  # about two years: longer than any task waits

_PACED_FROM = 10  # losses: before, a cap has ended most tasks
_LONGEST_PACE: Instant = 60 * SECOND


class StartPlace(IntEnum):
    """Where a delivery was started, as far as it is recorded. Only the start of a suspect is recorded."""

    UNKNOWN = 0  # it may have started; a suspect has not
    BESIDE_OTHERS = 1
    ALONE = 2  # in the engine's process, while no other function runs there
    APART = 3  # in a process of its own
    LET_GO = 4  # its process stopped in order: whatever happens next is not caused by it


class LossKind(IntEnum):
    """What is known of how a delivery was lost."""

    PROCESS = 0  # its process is gone; the log says where it had started
    ONLY = 1  # the same, and no other task was open in that process
    BESIDE_OTHERS = 2  # its worker is gone, and had started it
    ALONE = 3  # its worker, or its own process, is gone and ran nothing else
    STOPPED = 4  # not caused by it: an orderly stop, a lease that ended, a machine that restarted
    UNSEEN = 5  # it was alone, and its machine was not seen since: the machine may have restarted


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
        return task.suspicion, False  # the start of a suspect is recorded, and this task's was not
    is_let_pass = loss == LossKind.UNSEEN and task.losses <= ALONE_FROM  # once: a killer comes back
    return task.suspicion + 1, (place == StartPlace.ALONE and not is_let_pass) or loss == LossKind.ONLY


def loss_of_lease(place: int, loss_on_machine: LossKind) -> LossKind:
    """What the row of an expired lease without a result says: where its task was started, and on which machine."""
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
    """For how long a task that was lost this often keeps others from starting beside it."""
    return FIRST_TIME_ALONE << min(max(losses - ALONE_FROM, 0), _LONGEST_DOUBLING)


def pace(losses: int) -> Instant:
    """How long a task without a cap that was lost this often, in its own process, waits before it is started again."""
    return 0 if losses < _PACED_FROM else min(SECOND << min(losses - _PACED_FROM, _LONGEST_DOUBLING), _LONGEST_PACE)
