"""Runs whose parents have no use for them any more: each goes once it, and everything below it, has ended.

The letter that says so stays in the inbox until the run is erased, and is erased with it in one transaction. A crash
anywhere in between leaves the letter, and with it the task, to the next owner.
"""

from collections.abc import Sequence

from perdure.engine.chores import Chores
from perdure.engine.clock import Clock
from perdure.engine.inbox import Inbox
from perdure.engine.slot import Mail
from perdure.kernel import inputs as i
from perdure.kernel.errors import NewerRecord
from perdure.kernel.ids import is_family
from perdure.kernel.values import RunId
from perdure.stores.protocol import Filter, Letter, RunRow, Store

LETTERS_LOOKED_AT = 10_000


class Removal:
    def __init__(self, store: Store, inbox: Inbox, chores: Chores, clock: Clock) -> None:
        self._store = store
        self._inbox = inbox
        self._chores = chores
        self._clock = clock
        self._held: dict[RunId, list[Mail]] = {}  # runs that have ended, above others that have not
        self._told: set[RunId] = set()

    def remove(self, run: RunId, mails: Sequence[Mail]) -> None:
        """The run has ended; `mails` are letters to it, which nobody answers any more."""
        for mail in mails:
            mail.answer(i.Refused("the run is being removed"))
        self._chores.spawn(self._remove(run, [mail for mail in mails if mail.position is not None]))

    def look_again(self) -> None:
        held, self._held = self._held, {}
        for run, mails in held.items():
            self._chores.spawn(self._remove(run, mails))

    async def _remove(self, run: RunId, mails: list[Mail]) -> None:
        below = await descendants(self._store, run)
        still_open = [row.id for row in below if not row.status.is_final] + await unborn(self._store, run)
        if still_open:
            self._held[run] = [*self._held.get(run, ()), *mails]
            for one in still_open:
                if one not in self._told:
                    self._told.add(one)
                    await self._store.send(Letter(one, self._clock.now(), i.encode(i.Disown())))
            await self._inbox.read()
            return
        await self._store.remove([*(row.id for row in reversed(below)), run])
        self._inbox.forget(mails)
        self._told.discard(run)
        self.look_again()


async def unborn(store: Store, run: RunId) -> list[RunId]:
    """Runs below this one whose start is still a letter."""
    row = await store.find(run)
    letters = [] if row is None else await store.inbox([row.partition], LETTERS_LOOKED_AT)
    family = [one.letter for one in letters if is_family(one.letter.to, run)]
    return [letter.to for letter in family if _may_be_start(letter)]


def _may_be_start(letter: Letter) -> bool:
    try:
        return isinstance(i.decode(letter.body), i.Start)
    except NewerRecord:
        return True


async def descendants(store: Store, run: RunId) -> list[RunRow]:
    """Parents before their children."""
    found: list[RunRow] = []
    waiting = [run]
    while waiting:
        rows = await store.search(Filter(parent=waiting.pop()))
        found += rows
        waiting += [row.id for row in rows]
    return found
