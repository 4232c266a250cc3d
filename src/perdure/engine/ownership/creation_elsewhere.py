"""Runs that a server without an engine creates: recorded as begun, before their first move, and taken up by another.

    start, fork ─▶ accepted, no move made ─▶ one transaction: the run, where a live server owns it, and what wakes it

So the run is there for whoever asks once its start was answered, and nothing of it was done by a process that could
not go on with it.
"""

from functools import partial
from typing import TYPE_CHECKING

from perdure.engine.decision_threads import done_aside
from perdure.engine.resources.lookup_answers import fetch_values
from perdure.engine.runs.message_sending import MISSING
from perdure.engine.runs.resident_runs import EXISTS
from perdure.engine.slot import Mail, Slot
from perdure.engine.transition_builder import transition
from perdure.kernel import inputs as i
from perdure.kernel.errors import EngineMissing
from perdure.kernel.execution import Limits, decide
from perdure.kernel.turn import MissingValues, Turn
from perdure.stores.commit_types import Message, Transition, append_to
from perdure.stores.protocol import Store

if TYPE_CHECKING:
    from perdure.engine.scheduler import Scheduler

NO_MOVE = Limits(slice=0)
NEVER_A_SNAPSHOT = 1 << 62  # bytes
WAKE = i.encode(i.Wake())


async def create_elsewhere(scheduler: "Scheduler", slot: Slot, mails: list[Mail]) -> i.InputAnswer:
    """Accept what begins the run, and have a live server go on with it."""
    store, execution = scheduler.context.store, slot.execution
    assert execution is not None
    slot.taken = mails
    slot.unsynced = {name: text for mail in mails for name, text in mail.values}
    size = sum(len(text) for _, _, text in slot.programs) + sum(len(past) for _, past in slot.lived)
    about = (store.min_record_version, 0, False, scheduler.context.settings.routes)
    for mail in mails:
        turn = Turn(execution, mail.input, mail.at, mail.at, *about)
        turn.texts.update(slot.unsynced)
        accept = partial(_accept, turn, is_last=mail is mails[-1])
        while (needs := await done_aside(size, accept)) is not None:
            await _fetch(scheduler, slot, turn, needs)
        if isinstance(turn.answer, i.Refused):
            return turn.answer
        slot.finish(turn)
    change = transition(slot, NEVER_A_SNAPSHOT)
    assert change is not None
    scheduler.runs.loader.mark_editions(change)
    change.messages = append_to(change.messages, [Message(slot.id, mails[-1].at, WAKE)])
    return await _commit(store, change) or slot.turns[-1].answer


def _accept(turn: Turn, *, is_last: bool) -> MissingValues | None:
    return decide(turn, NO_MOVE, is_held=not is_last, owes_moves=is_last)


async def _fetch(scheduler: "Scheduler", slot: Slot, turn: Turn, needs: MissingValues) -> None:
    if needs.lookups:
        turn.answers.update(await scheduler.answers(needs.lookups))
    store = scheduler.context.store
    texts = await fetch_values(store, slot, needs.digests)
    for source in [source for mail in slot.taken for source, name in mail.borrowed if name is None]:
        texts |= await store.values(source, [name for name in needs.digests if name not in texts])
    missing = [name for name in needs.digests if name not in texts]
    if missing and not needs.may_be_absent:
        raise LookupError(f"large values of run {slot.id} are not in the store")
    turn.absent.update(missing)
    turn.texts.update(texts)


async def _commit(store: Store, change: Transition) -> i.Refused | None:
    """Why it was not created, if it was not."""
    new = change.create
    assert new is not None
    answer = await store.create_elsewhere(change)
    if answer is None:
        raise EngineMissing(MISSING)
    if change.run not in answer.refused:
        return None
    holder = None if new.named is None else await store.run_named(new.language, new.namespace, new.named)
    if holder is None or holder == change.run:
        return EXISTS
    taken = f"the name {new.named!r} in namespace {new.namespace!r} belongs to run {holder}"
    return i.Refused(f"the run cannot begin: {taken}", conflict=True)
